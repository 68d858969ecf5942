/* ldm.h: memory of a slave's LDM. */
#ifndef SWAMP_SUNWAY_LDM_H_
#define SWAMP_SUNWAY_LDM_H_

#include <swamp_sunway/side.h>

SWAMP_SUNWAY_BEGIN

/* 64-byte aligned; NULL when less is left beside the static variables. */
void* ldm_malloc(size_t bytes);
/* `bytes` must be those of the ldm_malloc(). */
void ldm_free(void* memory, size_t bytes);
unsigned get_allocatable_size(void);
/* The largest piece that is left; NULL and 0 bytes if none is. */
void* ldm_malloc_max(size_t* bytes);
void ldm_free_all(void);
#define CRTS_pldm_malloc ldm_malloc
#define CRTS_pldm_free ldm_free
#define CRTS_pldm_get_free_size get_allocatable_size

SWAMP_SUNWAY_END

#endif /* SWAMP_SUNWAY_LDM_H_ */
