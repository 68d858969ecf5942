#include <stdint.h>

typedef struct {
  long step;
} order_t;
