#ifndef SHARED_H
#define SHARED_H

enum { kSlaves = 64, kTiles = 200, kTile = 32, kRounds = 100 };

/* It contains padding in two places. */
typedef struct {
  char kind;
  double value;
  short count;
} result_t;

#endif
