/* Words from the microphone at the devicetree alias `i2s-mic`. */
#include <dk.h>
#include <zephyr/device.h>
#include <zephyr/drivers/i2s.h>
#include <zephyr/kernel.h>
#include <zephyr/sys/printk.h>

/* Blocks of 10 ms. While dk_push computes a window, the driver fills the others: they must hold the
 * sound of one inference. DK_HOP_MS is the longest that it may take. */
#define BLOCK_BYTES (160 * sizeof(int16_t))
#define BLOCKS (DK_HOP_MS / 10 + 4)
K_MEM_SLAB_DEFINE_STATIC(blocks, BLOCK_BYTES, BLOCKS, 4);

/* Starts the microphone again after an overrun. The words begin anew: sound is missing. */
static int restart(const struct device *microphone) {
    i2s_trigger(microphone, I2S_DIR_RX, I2S_TRIGGER_PREPARE);
    dk_init();
    return i2s_trigger(microphone, I2S_DIR_RX, I2S_TRIGGER_START);
}

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
    dk_init();
    if (i2s_trigger(microphone, I2S_DIR_RX, I2S_TRIGGER_START)) return 1;
    for (;;) {
        void *block;
        size_t size;
        if (i2s_read(microphone, &block, &size)) {
            printk("sound was lost\n");
            if (restart(microphone)) return 1;
            continue;
        }
        dk_push(block, size / sizeof(int16_t));
        k_mem_slab_free(&blocks, block);
        dk_event event;
        while (dk_result(&event)) printk("%s\n", dk_labels[event.label]);
    }
}
