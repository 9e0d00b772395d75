/* Start-up of a Cortex-M, with or without an FPU, and the timer of Arm's MPS2 boards. */
#include "board.h"

#include <string.h>

#ifndef BOARD_NAME
#define BOARD_NAME "cortex-m"
#endif
const char *const board_name = BOARD_NAME;

extern uint32_t board_stack_top[], board_data_start[], board_data_end[], board_data_load[];
void reset(void);
extern uint32_t board_bss_start[], board_bss_end[];

/* The CMSDK timer counts down at 25 MHz, on mps2-an505 at 20 MHz. With qemu -icount shift=0 an
 * instruction takes one nanosecond, so a tick is forty instructions, or fifty. */
#ifndef BOARD_TIMER
#define BOARD_TIMER 0x40000000u
#define BOARD_TICK 40
#endif
#define TIMER ((volatile uint32_t *)BOARD_TIMER)
enum { CONTROL = 0, VALUE = 1, RELOAD = 2 };

uint32_t board_instructions(void) { return (0xffffffffu - TIMER[VALUE]) * BOARD_TICK; }

void reset(void) {
#ifdef __ARM_FP
    *(volatile uint32_t *)0xe000ed88u |= 0xfu << 20; /* CPACR: the FPU */
#endif
    __asm__ volatile("dsb\nisb" ::: "memory");
    memcpy(board_data_start, board_data_load,
           (size_t)((char *)board_data_end - (char *)board_data_start));
    memset(board_bss_start, 0, (size_t)((char *)board_bss_end - (char *)board_bss_start));
    TIMER[RELOAD] = 0xffffffffu;
    TIMER[VALUE] = 0xffffffffu;
    TIMER[CONTROL] = 1;
    board_exit(board_main());
}

static void fault(void) {
    board_print("fault\n");
    board_exit(3);
}

__attribute__((section(".vectors"), used)) static const struct {
    uint32_t *stack;
    void (*handlers[15])(void);
} vectors = {board_stack_top, {reset, fault, fault, fault, fault, fault}};
