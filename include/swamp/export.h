/**
 * @file
 * What libswamp exports. */
#ifndef SWAMP_EXPORT_H_
#define SWAMP_EXPORT_H_

/** SWAMP_API marks what libswamp exports; everything else is hidden. */
#define SWAMP_API __attribute__((visibility("default")))

#endif /* SWAMP_EXPORT_H_ */
