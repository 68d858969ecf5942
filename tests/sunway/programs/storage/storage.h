typedef struct {
  int a, b;
} pair_t;

typedef struct {
  int* numbers; /* 16 of each slave */
  pair_t* sums; /* of each slave */
  int count;
} args_t;
