/// @file
/// Optimizer: the interface between GradScaler and an optimizer.
#ifndef SWAMP_OPTIMIZER_H_
#define SWAMP_OPTIMIZER_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "swamp/export.h"
#include "swamp/tensor.h"

namespace swamp {

/// Optimizer is what a GradScaler unscales and steps. Derive from it, or use a
/// FunctionOptimizer. A GradScaler identifies optimizers by their address, as
/// PyTorch does by id(), and does not own them.
class SWAMP_API Optimizer {
 public:
  virtual ~Optimizer();

  /// gradients() returns all gradients that step() will read, each once,
  /// without the missing ones (None). The list must stay valid until the
  /// GradScaler's call returns.
  virtual TensorList gradients() = 0;

  /// gradient_name() returns the name of a gradient for reports; "" if none.
  ///
  /// @param index below gradients().count()
  virtual std::string gradient_name(std::size_t index) const;

  /// step() updates the parameters. GradScaler::step() passes on its
  /// exceptions.
  virtual void step() = 0;
};

/// FunctionOptimizer is an Optimizer made from gradients and a function.
/// It cannot be copied, because its address is its identity.
class SWAMP_API FunctionOptimizer final : public Optimizer {
 public:
  /// @param gradients the caller's arrays, which must outlive this; the list of
  ///   them is copied
  /// @param step called by step(); must not be empty
  /// @param names of the gradients, in the same order, or none at all
  /// @throws Error SWAMP_INVALID_ARGUMENT for an empty function, or if the
  ///   number of names is neither 0 nor the number of gradients
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
