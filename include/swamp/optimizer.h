/// @file
/// What a GradScaler must know of an optimizer.
#ifndef SWAMP_OPTIMIZER_H_
#define SWAMP_OPTIMIZER_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "swamp/export.h"
#include "swamp/tensor.h"

namespace swamp {

/// Optimizer is what a GradScaler unscales and steps. Derive from it, or wrap
/// what you have in a FunctionOptimizer. A GradScaler tells optimizers apart by
/// their address, as PyTorch by id(); it owns none.
class SWAMP_API Optimizer {
 public:
  virtual ~Optimizer();

  /// gradients() are all gradients that step() will read, none twice; those
  /// that are not there (None) are left out. The list must stay valid until the
  /// GradScaler's call returns.
  virtual TensorList gradients() = 0;

  /// gradient_name() names a gradient in reports; "" where there is no name.
  ///
  /// @param index below gradients().count()
  virtual std::string gradient_name(std::size_t index) const;

  /// step() moves the parameters. What it throws passes through
  /// GradScaler::step().
  virtual void step() = 0;
};

/// FunctionOptimizer makes an Optimizer of a list of gradients and a function.
/// It cannot be copied, because its address is its identity.
class SWAMP_API FunctionOptimizer final : public Optimizer {
 public:
  /// @param gradients the caller's arrays, which must outlive this; the list of
  ///   them is copied
  /// @param step called by step(); must not be empty
  /// @param names of the gradients, in the same order, or none at all
  /// @throws Error SWAMP_INVALID_ARGUMENT for an empty function, or when there
  ///   are names but not as many as gradients
  FunctionOptimizer(TensorList gradients, std::function<void()> step,
                    std::vector<std::string> names = {});
  /// Not to be copied.
  FunctionOptimizer(const FunctionOptimizer&) = delete;
  /// Not to be copied.
  FunctionOptimizer& operator=(const FunctionOptimizer&) = delete;
  ~FunctionOptimizer() override;

  TensorList gradients() override;
  std::string gradient_name(std::size_t index) const override;
  void step() override;

 private:
  std::vector<Tensor> gradients_;
  std::function<void()> step_;
  std::vector<std::string> names_;
};

}  // namespace swamp

#endif  // SWAMP_OPTIMIZER_H_
