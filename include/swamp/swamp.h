/// @file
/// swamp.h includes all C++ headers of libswamp.
///
/// @mainpage
/// What a mixed-precision trainer computes around backward(), and the operators
/// of 16-bit and 8-bit models, on CPUs. c_api.h is the stable C ABI, swamp.h
/// includes the C++ headers.
///
/// | C | C++ |
/// |---|---|
/// | @ref c_basics | tensor.h, error.h, float_formats.h |
/// | @ref c_machine, @ref c_reports | machine.h, predict.h |
/// | @ref c_amp | amp.h, foreach.h, scan.h |
/// | @ref c_optimizer | mixed_precision.h, optimizer.h, grad_scaler.h |
/// | | communicator.h, mpi.h |
/// | @ref c_rows | rows.h, attention.h, channel_norm.h, moe.h |
/// | @ref c_activation | activation.h, pointwise.h |
/// | @ref c_product | product.h |
/// | @ref c_float8 | float8.h |
/// | @ref c_scaler | loss_scaler.h |
/// | @ref c_scale_manager | scale_manager.h |
#ifndef SWAMP_SWAMP_H_
#define SWAMP_SWAMP_H_

#include "swamp/activation.h"
#include "swamp/amp.h"
#include "swamp/attention.h"
#include "swamp/c_api.h"
#include "swamp/channel_norm.h"
#include "swamp/communicator.h"
#include "swamp/convolution.h"
#include "swamp/error.h"
#include "swamp/float8.h"
#include "swamp/float_formats.h"
#include "swamp/foreach.h"
#include "swamp/grad_scaler.h"
#include "swamp/loss_scaler.h"
#include "swamp/machine.h"
#include "swamp/mixed_precision.h"
#include "swamp/moe.h"
#include "swamp/optimizer.h"
#include "swamp/pointwise.h"
#include "swamp/predict.h"
#include "swamp/product.h"
#include "swamp/rows.h"
#include "swamp/scale_manager.h"
#include "swamp/scan.h"
#include "swamp/tensor.h"

#endif  // SWAMP_SWAMP_H_
