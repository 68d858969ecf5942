  .data
  .balign 128
  .globl first, second, third, fourth
  .irp name, first, second
  .type \name, @object
  .size \name, 32
\name: .zero 32
  .endr
  .irp name, third, fourth
  .type \name, @object
  .size \name, 2
\name: .zero 2
  .endr
  .section .note.GNU-stack, "", @progbits
