/* Start-up of a RISC-V hart in machine mode, as on qemu's virt board. */
#include "board.h"

#include <string.h>

#ifndef BOARD_NAME
#define BOARD_NAME "riscv"
#endif
const char *const board_name = BOARD_NAME;

extern uint32_t board_bss_start[], board_bss_end[];

uint32_t board_instructions(void) {
    uintptr_t count;
    __asm__ volatile("csrr %0, minstret" : "=r"(count));
    return (uint32_t)count;
}

__attribute__((used)) static void reset(void) {
    memset(board_bss_start, 0, (size_t)((char *)board_bss_end - (char *)board_bss_start));
    board_exit(board_main());
}

__attribute__((used)) static void fault(void) {
    board_print("fault\n");
    board_exit(3);
}

/* Where there is an FPU, it is switched on in mstatus (FS = initial). */
#ifdef __riscv_flen
#define START_FPU "li t0, 0x2000\ncsrs mstatus, t0\ncsrwi fcsr, 0\n"
#else
#define START_FPU
#endif
__attribute__((section(".entry"), naked, used)) void entry(void) {
    __asm__ volatile(".option push\n.option norelax\nla gp, __global_pointer$\n.option pop\n"
                     "la sp, board_stack_top\n"
                     "la t0, fault\ncsrw mtvec, t0\n" START_FPU "j reset");
}
