/* Only the loop of dk.h, to measure the flash and RAM of the library. */
#include "board.h"
#include "dk.h"

static volatile int16_t microphone;
static volatile uint32_t lamp;

int board_main(void) {
    dk_init();
    for (;;) {
        int16_t samples[160];
        for (uint32_t i = 0; i < 160; i++) samples[i] = microphone;
        dk_push(samples, 160);
        dk_event event;
        while (dk_result(&event)) lamp = event.label;
    }
}
