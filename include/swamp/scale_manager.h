/// @file
/// Scale managers of 8-bit and block-scaled recipes: from the largest magnitude
/// (amax) of each tensor to the factor that its elements are multiplied by
/// before quantize(), as Transformer Engine, torchao, MS-AMP and others choose
/// it, bit for bit.
#ifndef SWAMP_SCALE_MANAGER_H_
#define SWAMP_SCALE_MANAGER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "swamp/communicator.h"
#include "swamp/export.h"
#include "swamp/loss_scaler.h"

namespace swamp {

/// BlockScale is the scale of a tensor, or of a block of it.
struct BlockScale {
  float scale = 1;        ///< what the elements are multiplied by
  float scale_inv = 1;    ///< what their codes are multiplied by
  std::uint8_t code = 0;  ///< as stored: float8_e8m0fnu or e4m3fn; or 0
};

/// ScaleManager holds the scales of a number of tensors, and the rule of a
/// recipe that updates them. Only one thread at a time may use it.
///
/// A step of delayed scaling quantizes with scale(), observes the amax that
/// quantize() reports, reduces, and updates. A recipe that scales in time, from
/// the amax of the tensor itself, observes it (and reduces) before it asks for
/// the scale: from then on scale() returns the scale of the observed amax.
class SWAMP_API ScaleManager {
 public:
  /// from_name() makes a manager with the rule of a known recipe, for example
  /// "te.DelayedScaling" or "torchao.mx"; see names().
  ///
  /// @param name of the recipe
  /// @param forward number of tensors of the forward pass, which come first:
  ///   inputs and weights
  /// @param backward number of gradients, which may have another format
  /// @param options the original's options by their names
  /// @throws Error SWAMP_INVALID_ARGUMENT for an unknown name, option or value
  ///   (the text lists the valid ones)
  static ScaleManager from_name(const std::string& name, std::size_t forward,
                                std::size_t backward = 0,
                                const ScalerOptions& options = {});

  /// names() returns all names in alphabetical order.
  static std::vector<std::string> names();

  /// Moves the state; `other` can then only be destroyed or assigned.
  ScaleManager(ScaleManager&& other) noexcept;
  /// As the constructor.
  ScaleManager& operator=(ScaleManager&& other) noexcept;
  ~ScaleManager();

  /// The name as from_name() takes it.
  const std::string& name() const noexcept;
  /// The number of tensors, forward + backward.
  std::size_t count() const noexcept;

  /// observe_all() records the amax of every tensor. Several calls before an
  /// update() record the largest; nan is larger than inf.
  ///
  /// @param amax at least 0, or nan; -1: the tensor was not seen
  /// @param count number of tensors
  /// @throws Error SWAMP_INVALID_ARGUMENT that names the entry; nothing is
  ///   recorded then
  void observe_all(const float* amax, std::size_t count);

  /// observe() is observe_all() of one tensor.
  ///
  /// @param index of the tensor
  /// @param amax as above
  void observe(std::size_t index, float amax);

  /// amax() returns what was observed since the last update(), -1 for nothing.
  /// The maximum over the ranks may be passed to observe_all().
  std::vector<float> amax() const;

  /// reduce() replaces what was observed by the largest of all ranks: one
  /// all-reduce of the vector. Nothing is changed if the communicator fails.
  ///
  /// @param communicator collective: every rank calls, with equal managers
  void reduce(Communicator& communicator);

  /// update() ends a step and computes the scales of the next one.
  void update();

  /// scale() returns the factor of the elements of a tensor.
  ///
  /// @param index below count()
  float scale(std::size_t index) const;

  /// scale_inv() returns the factor of its codes, 1 / scale except in recipes
  /// that keep the inverse.
  ///
  /// @param index below count()
  float scale_inv(std::size_t index) const;

  /// block_scale() returns the scale of a block or row of a tensor. In NVFP4 it
  /// depends on the scale of the tensor.
  ///
  /// @param index of the tensor
  /// @param amax of the block: at least 0, or nan
  /// @throws Error SWAMP_UNSUPPORTED if the recipe scales whole tensors
  BlockScale block_scale(std::size_t index, float amax) const;

  /// history() returns the window of amax of a tensor as the original keeps it;
  /// empty if the recipe has none.
  ///
  /// @param index below count()
  std::vector<float> history(std::size_t index) const;

  /// state_dict() returns one JSON object with the original's keys.
  std::string state_dict() const;

  /// load_state_dict() loads the result of state_dict(), or the original's
  /// state as JSON. Floats may be strings of C99 hexadecimal numbers.
  ///
  /// @param json the text
  /// @throws Error SWAMP_INVALID_ARGUMENT that names the key, also if the state
  ///   is of another recipe, or has a scale that the recipe cannot yield: of
  ///   Transformer Engine and Megatron-LM 0, a negative, inf or nan, of the
  ///   others a negative; nothing is changed then
  void load_state_dict(const std::string& json);

 private:
  struct Impl;
  explicit ScaleManager(std::unique_ptr<Impl> impl) noexcept;
  // Returns the index; throws Error if there is no such tensor.
  std::size_t checked(std::size_t index) const;
  BlockScale scale_of(std::size_t index) const;

  std::unique_ptr<Impl> impl_;
};

}  // namespace swamp

#endif  // SWAMP_SCALE_MANAGER_H_
