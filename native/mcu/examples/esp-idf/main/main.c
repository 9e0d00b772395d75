/* Words from an I2S microphone (INMP441): clock on 4, word select on 5, data on 6. */
#include <dk.h>
#include <driver/i2s_std.h>
#include <stdio.h>

static i2s_chan_handle_t open_microphone(void) {
    i2s_chan_handle_t microphone;
    i2s_chan_config_t channel = I2S_CHANNEL_DEFAULT_CONFIG(I2S_NUM_0, I2S_ROLE_MASTER);
    channel.dma_frame_num = 160;
    channel.dma_desc_num = DK_HOP_MS / 10 + 4; /* what comes in while a window is computed */
    ESP_ERROR_CHECK(i2s_new_channel(&channel, NULL, &microphone));
    i2s_std_config_t config = {
        .clk_cfg = I2S_STD_CLK_DEFAULT_CONFIG(16000),
        .slot_cfg =
            I2S_STD_PHILIPS_SLOT_DEFAULT_CONFIG(I2S_DATA_BIT_WIDTH_32BIT, I2S_SLOT_MODE_MONO),
        .gpio_cfg =
            {.mclk = I2S_GPIO_UNUSED, .bclk = 4, .ws = 5, .dout = I2S_GPIO_UNUSED, .din = 6},
    };
    ESP_ERROR_CHECK(i2s_channel_init_std_mode(microphone, &config));
    ESP_ERROR_CHECK(i2s_channel_enable(microphone));
    return microphone;
}

void app_main(void) {
    i2s_chan_handle_t microphone = open_microphone();
    static int32_t raw[160];
    static int16_t samples[160];
    dk_init();
    for (;;) {
        size_t bytes = 0;
        i2s_channel_read(microphone, raw, sizeof raw, &bytes, portMAX_DELAY);
        size_t count = bytes / sizeof *raw;
        for (size_t i = 0; i < count; i++) samples[i] = (int16_t)(raw[i] >> 14);
        dk_push(samples, count);
        dk_event event;
        while (dk_result(&event)) printf("%s %.2f\n", dk_labels[event.label], event.score);
    }
}
