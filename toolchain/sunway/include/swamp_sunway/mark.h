/* mark.h: swcc includes it into all slave code, and recognises slave objects by
 * this section. */
__asm__(".pushsection .swamp.slave,\"e\",@progbits\n\t.byte 1\n\t.popsection");
/* swcc replaces addresses in another slave's LDM by calls of this. */
#ifdef __cplusplus
extern "C"
#endif
unsigned long swamp_remote_ldm(unsigned long, unsigned long, unsigned long);
