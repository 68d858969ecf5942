// The checkpoint of a run: one safetensors file.
//
//     texts    swamp.*      format, and the digest of everything else
//              option.*     options that a resumed run must also have
//              run.*        steps, random state, log, order of the sums
//              optimizer.*, grad_scaler
//              fp8_scales   of delayed scaling
//     tensors  optimizer.state.*, fp32_from_fp16_params.*  (OptimizerState)
//              model.*      the weights of a float32 model
//              history      float64, one row per step
#ifndef SWAMP_MASTER_CLI_TRAIN_CHECKPOINT_H_
#define SWAMP_MASTER_CLI_TRAIN_CHECKPOINT_H_

#include <map>
#include <string>

#include "master/cli/scan/tensor_file.h"
#include "master/cli/train/log.h"
#include "master/cli/train/trainer.h"

namespace swamp::cli {

struct Checkpoint {
  std::map<std::string, std::string> options;
  TrainerState trainer;
  // The number of micro batches that a rank adds up before the sums of the
  // ranks are added.
  std::uint64_t summed_apart = 1;
  LogPlace log;
  History history;
};

// The same checkpoint gives the same bytes.
std::string encode_checkpoint(const Checkpoint& checkpoint);

// decode_checkpoint() throws Failure, without the file's name, if the file is
// not what encode_checkpoint() made, down to a flipped bit.
Checkpoint decode_checkpoint(Bytes file);

// read_checkpoint() reads a file, and returns false if there is none. Throws
// Failure for any other error.
bool read_checkpoint(const std::string& path, std::string& content);

// check_options() throws Failure for the first option in which a run differs
// from the one that made a checkpoint.
void check_options(const std::map<std::string, std::string>& made_with,
                   const std::map<std::string, std::string>& given);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_TRAIN_CHECKPOINT_H_
