/* Lets a program on an Intel processor with AVX-512 run as on one with AVX2 alone.
 *
 *     cc -O2 -shared -fPIC -o /tmp/hide_avx512.so benchmarks/hide_avx512.c
 *     LD_PRELOAD=/tmp/hide_avx512.so python benchmarks/reach_fixed.py ...
 *
 * Every runtime asks the CPUID instruction what the processor has. Linux can let this instruction
 * fault (ARCH_SET_CPUID), where the processor supports it (`cpuid_fault` in /proc/cpuinfo). The
 * handler runs the instruction and clears the bits of AVX-512, AVX-VNNI and AMX. So ONNX Runtime
 * and the others take the code that they take on a processor with AVX2, and can be compared with
 * our AVX2 kernels.
 */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <cpuid.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define BIT(n) (1u << (n))

/* F, DQ, IFMA, PF, ER, CD, BW, VL */
static const unsigned HIDDEN_7_EBX =
    BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31);
/* VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ */
static const unsigned HIDDEN_7_ECX = BIT(1) | BIT(6) | BIT(11) | BIT(12) | BIT(14);
/* 4VNNIW, 4FMAPS, VP2INTERSECT, AMX-BF16, FP16, AMX-TILE, AMX-INT8 */
static const unsigned HIDDEN_7_EDX =
    BIT(2) | BIT(3) | BIT(8) | BIT(22) | BIT(23) | BIT(24) | BIT(25);
/* AVX-VNNI, AVX-512 BF16, AMX-FP16, AVX-IFMA */
static const unsigned HIDDEN_7_1_EAX = BIT(4) | BIT(5) | BIT(21) | BIT(23);

static void set_cpuid(unsigned long enabled) {
    if (syscall(SYS_arch_prctl, ARCH_SET_CPUID, enabled)) {
        fprintf(stderr, "hide_avx512: this processor or system cannot let CPUID fault\n");
        exit(2);
    }
}

static void answer(int number, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *code = (const unsigned char *)registers[REG_RIP];
    (void)info;
    if (code[0] != 0x0f || code[1] != 0xa2) { /* not CPUID: a real fault */
        signal(number, SIG_DFL);
        return;
    }
    const unsigned leaf = (unsigned)registers[REG_RAX], part = (unsigned)registers[REG_RCX];
    unsigned a, b, c, d;
    set_cpuid(1);
    __cpuid_count(leaf, part, a, b, c, d);
    set_cpuid(0);
    if (leaf == 7 && part == 0) {
        b &= ~HIDDEN_7_EBX;
        c &= ~HIDDEN_7_ECX;
        d &= ~HIDDEN_7_EDX;
    }
    if (leaf == 7 && part == 1) a &= ~HIDDEN_7_1_EAX;
    registers[REG_RAX] = a;
    registers[REG_RBX] = b;
    registers[REG_RCX] = c;
    registers[REG_RDX] = d;
    registers[REG_RIP] += 2;
}

__attribute__((constructor)) static void hide(void) {
    struct sigaction action = {0};
    action.sa_sigaction = answer;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &action, NULL);
    set_cpuid(0);
}
