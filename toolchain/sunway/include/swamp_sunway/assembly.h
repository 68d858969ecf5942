/* assembly.h: instructions of the machine that programs use in inline assembly,
 * as assembler macros: the cycle counter, a slave's numbers, the memory
 * barrier. swcc includes it into all code. swcc writes the other instructions
 * that it knows in C, after gcc has refused them. */
#ifdef __sw_slave__
#define SWAMP_CYCLES "swamp_slave_cycles"
#else
#define SWAMP_CYCLES "swamp_master_cycles"
#endif

/* The mark of host objects; slave objects have that of mark.h. */
#ifndef __sw_slave__
__asm__(".pushsection .swamp.host,\"e\",@progbits\n\t.byte 1\n\t.popsection");
#endif
__asm__(
    /* Moves the result in rax to a register of any size, and restores rdx and
     * rax from the stack. */
    ".macro swamp_result to\n"
    "  movq %rax, 16(%rsp)\n"
    "  popq %rdx\n"
    "  popq %rax\n"
    "  mov (%rsp), \\to\n"
    "  leaq 8(%rsp), %rsp\n"
    ".endm\n"
    ".macro swamp_begin\n"
    "  pushq %rax\n"
    "  pushq %rax\n"
    "  pushq %rdx\n"
    ".endm\n"
    ".macro rtc to:req\n"
    "  swamp_begin\n"
    "  rdtsc\n"
    "  shlq $32, %rdx\n"
    "  orq %rdx, %rax\n"
    "  movq " SWAMP_CYCLES
    "@GOTPCREL(%rip), %rdx\n"
    "  mulq (%rdx)\n"
    "  shrdq $32, %rdx, %rax\n"
    "  swamp_result \\to\n"
    ".endm\n"
    ".macro swamp_number to, name\n"
    "  swamp_begin\n"
    "  movq \\name@GOTTPOFF(%rip), %rax\n"
    "  movsbq %fs:(%rax), %rax\n"
    "  swamp_result \\to\n"
    ".endm\n"
    ".macro rcsr to:req, which:req\n"
    "  .if (\\which) == 0\n"
    "    swamp_number \\to, _PEN\n"
    "  .elseif (\\which) == 1\n"
    "    swamp_number \\to, _ROW\n"
    "  .elseif (\\which) == 2\n"
    "    swamp_number \\to, _COL\n"
    "  .elseif (\\which) == 3\n"
    "    swamp_number \\to, _CGN\n"
    "  .elseif (\\which) == 4\n"
    "    rtc \\to\n"
    "  .else\n"
    "    .error \"swcc: rcsr of this register is not emulated\"\n"
    "  .endif\n"
    ".endm\n"
    ".macro memb\n"
    "  mfence\n"
    ".endm\n"
    ".macro wmemb\n"
    "  mfence\n"
    ".endm\n"
    ".irp name, synr, sync, synp, dma, rma, faaw, faal, updt, lldw, lstw, "
    "getr, getc, putr, putc\n"
    "  .macro \\name rest:vararg\n"
    "    .error \"swcc: \\name is not emulated in this asm\"\n"
    "  .endm\n"
    ".endr\n");
#undef SWAMP_CYCLES

#ifdef __sw_slave__
/* Register communication of SW26010, to the slave `to` of the row (R) or column
 * (C). The compiler knows these without a header. */
#ifdef __cplusplus
extern "C" {
#endif
void swamp_putr(const void* value, unsigned long bytes, int to);
void swamp_putc(const void* value, unsigned long bytes, int to);
void swamp_getr(void* value, unsigned long bytes);
void swamp_getc(void* value, unsigned long bytes);
#ifdef __cplusplus
}
#endif
#define SWAMP_PUT(put, value, to)                               \
  __extension__({                                               \
    __typeof__(value) swamp_value = (value);                    \
    put((const void*)&swamp_value, sizeof(swamp_value), (to));  \
  })
#define SWAMP_GET(get, value)                                   \
  __extension__({                                               \
    __typeof__(value) swamp_value;                              \
    get((void*)&swamp_value, sizeof(swamp_value));              \
    swamp_value;                                                \
  })
#define __builtin_sw64_putR(value, to) SWAMP_PUT(swamp_putr, value, to)
#define __builtin_sw64_putC(value, to) SWAMP_PUT(swamp_putc, value, to)
#define __builtin_sw64_getxR(value) SWAMP_GET(swamp_getr, value)
#define __builtin_sw64_getxC(value) SWAMP_GET(swamp_getc, value)
#endif

/* Every read of a counter is executed, even if the program forgot volatile. */
#define asm(...) __asm__ __volatile__(__VA_ARGS__)
