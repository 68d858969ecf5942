/**
 * @file
 * The mark of exported functions and classes. */
#ifndef SWAMP_EXPORT_H_
#define SWAMP_EXPORT_H_

/** SWAMP_API marks what libswamp exports. Everything else is hidden. */
#define SWAMP_API __attribute__((visibility("default")))

#endif /* SWAMP_EXPORT_H_ */
