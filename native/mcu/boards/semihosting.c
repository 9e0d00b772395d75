/* A host's services by semihosting: https://github.com/ARM-software/abi-aa/tree/main/semihosting */
#include "board.h"

#include <string.h>

enum {
    SYS_OPEN = 0x01,
    SYS_CLOSE = 0x02,
    SYS_WRITE0 = 0x04,
    SYS_READ = 0x06,
    SYS_GET_CMDLINE = 0x15,
    SYS_EXIT_EXTENDED = 0x20,
};
#define APPLICATION_EXIT 0x20026

static uintptr_t call(uintptr_t operation, const void *argument) {
#ifdef __riscv
    register uintptr_t a0 __asm__("a0") = operation;
    register const void *a1 __asm__("a1") = argument;
    /* the three instructions are what a debugger recognises; they must lie in one page */
    __asm__ volatile(".balign 16\n.option push\n.option norvc\n"
                     "slli x0, x0, 0x1f\nebreak\nsrai x0, x0, 7\n.option pop"
                     : "+r"(a0)
                     : "r"(a1)
                     : "memory");
    return a0;
#else
    register uintptr_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
#endif
}

void board_print(const char *text) { call(SYS_WRITE0, text); }

size_t board_arguments(char *line, size_t size) {
    uintptr_t block[2] = {(uintptr_t)line, size};
    return call(SYS_GET_CMDLINE, block) ? 0 : block[1];
}

size_t board_read_file(const char *path, void *to, size_t size) {
    uintptr_t open[3] = {(uintptr_t)path, 1 /* rb */, strlen(path)};
    uintptr_t file = call(SYS_OPEN, open);
    if (file == (uintptr_t)-1) return 0;
    uintptr_t read[3] = {file, (uintptr_t)to, size};
    size_t missing = call(SYS_READ, read);
    call(SYS_CLOSE, &file);
    return missing > size ? 0 : size - missing;
}

_Noreturn void board_exit(int status) {
    uintptr_t block[2] = {APPLICATION_EXIT, (uintptr_t)status};
    call(SYS_EXIT_EXTENDED, block);
    for (;;) {
    }
}

/* ---- stack: painted once, searched for the deepest spot that lost its paint --------------------
 */

extern uint32_t board_stack_bottom[], board_stack_top[]; /* linker script */
#define PAINT 0x5afec0deu

void board_paint_stack(void) {
    uint32_t here;
    uintptr_t end = (uintptr_t)&here - 64; /* this function's own frame stays as it is */
    for (volatile uint32_t *at = board_stack_bottom; (uintptr_t)at < end; at++) *at = PAINT;
}

size_t board_stack_used(void) {
    const uint32_t *at = board_stack_bottom;
    while (at < board_stack_top && *(const volatile uint32_t *)at == PAINT) at++;
    return (size_t)(board_stack_top - at) * sizeof *at;
}
