/* mark.h: swcc includes it into all slave code, and recognises slave objects by
 * this section. */
__asm__(".pushsection .swamp.slave,\"e\",@progbits\n\t.byte 1\n\t.popsection");
