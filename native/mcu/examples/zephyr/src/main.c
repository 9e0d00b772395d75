/* Words from the microphone at the devicetree alias `i2s-mic`. */
#include <dk.h>
#include <zephyr/device.h>
#include <zephyr/drivers/i2s.h>
#include <zephyr/kernel.h>
#include <zephyr/sys/printk.h>

#define BLOCK_BYTES (160 * sizeof(int16_t))
K_MEM_SLAB_DEFINE_STATIC(blocks, BLOCK_BYTES, 8, 4);

int main(void) {
    const struct device *microphone = DEVICE_DT_GET(DT_ALIAS(i2s_mic));
    struct i2s_config config = {
        .word_size = 16,
        .channels = 1,
        .format = I2S_FMT_DATA_FORMAT_I2S,
        .options = I2S_OPT_BIT_CLK_MASTER | I2S_OPT_FRAME_CLK_MASTER,
        .frame_clk_freq = 16000,
        .mem_slab = &blocks,
        .block_size = BLOCK_BYTES,
        .timeout = 1000,
    };
    if (!device_is_ready(microphone) || i2s_configure(microphone, I2S_DIR_RX, &config)) return 1;
    i2s_trigger(microphone, I2S_DIR_RX, I2S_TRIGGER_START);
    dk_init();
    for (;;) {
        void *block;
        size_t size;
        if (i2s_read(microphone, &block, &size)) continue;
        dk_push(block, size / sizeof(int16_t));
        k_mem_slab_free(&blocks, block);
        dk_event event;
        while (dk_result(&event)) printk("%s\n", dk_labels[event.label]);
    }
}
