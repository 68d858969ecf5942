/* ldm.h: memory of a slave's LDM. */
#ifndef SWAMP_SUNWAY_LDM_H_
#define SWAMP_SUNWAY_LDM_H_

#include <swamp_sunway/side.h>

SWAMP_SUNWAY_BEGIN

/* 64-byte aligned; NULL if the static variables leave less. */
void* ldm_malloc(size_t bytes);
/* `bytes` must be the size passed to ldm_malloc(). */
void ldm_free(void* memory, size_t bytes);
unsigned get_allocatable_size(void);
/* Allocates the largest free piece; NULL and 0 bytes if there is none. */
void* ldm_malloc_max(size_t* bytes);
void ldm_free_all(void);
#define CRTS_pldm_malloc ldm_malloc
#define CRTS_pldm_free ldm_free
#define CRTS_pldm_get_free_size get_allocatable_size

SWAMP_SUNWAY_END

#endif /* SWAMP_SUNWAY_LDM_H_ */
