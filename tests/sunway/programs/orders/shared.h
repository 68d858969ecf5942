#ifndef SHARED_H
#define SHARED_H

enum { kSlaves = 64, kTiles = 200, kTile = 32 };

/* Three bytes and six more of it are padding. */
typedef struct {
  char kind;
  double value;
  short count;
} result_t;

#endif
