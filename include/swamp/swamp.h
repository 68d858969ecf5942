/// @file
/// swamp.h includes all C++ headers of libswamp.
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
#include "swamp/predict.h"
#include "swamp/product.h"
#include "swamp/rows.h"
#include "swamp/scale_manager.h"
#include "swamp/scan.h"
#include "swamp/tensor.h"

#endif  // SWAMP_SWAMP_H_
