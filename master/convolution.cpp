// Direct convolutions. A unit is a block of at most kConvolutionLanes filters
// of an image, or of a band of its rows, whose number is bounded by the caches,
// or by LDM. A gradient of a weight is summed over the images in their order,
// so that its grains are blocks and their terms. In LDM an image of 16 filters
// must fit, because a unit is an image.
#include "swamp/convolution.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "master/row_launch.h"
#include "master/text.h"
#include "slave/convolution_args.h"

namespace swamp {

using master::Checker;
using master::divided;
using master::RowTable;
using master::Workspace;
using slave::ConvolutionArgs;
using slave::ConvolutionAxis;

namespace {

constexpr std::size_t kMostSize = std::size_t{1} << 28;
constexpr std::size_t kLanes = slave::kConvolutionLanes;

// ---- Validation

void require_dimension(const char* name, const ConvolutionDimension& one,
                       bool is_weight) {
  const auto within = [&](const char* field, auto value, decltype(value) least,
                          decltype(value) most) {
    if (value >= least && value <= most) return;
    master::refuse(std::string(name) + "." + field, std::to_string(value),
                   std::to_string(least) + " to " + std::to_string(most),
                   value < least && least > 0 ? SWAMP_INVALID_ARGUMENT
                                              : SWAMP_UNSUPPORTED);
  };
  constexpr auto kMost = static_cast<long>(kMostSize);
  within("in", one.in, 1, kMostSize);
  within("out", one.out, 1, kMostSize);
  within("kernel", one.kernel, 1, kMostSize);
  within("divisor", one.divisor, 1, is_weight || one.in_step != 1 ? 1 : kMost);
  within("in_step", one.in_step, 1, kMost);
  within("kernel_step", one.kernel_step, -kMost, kMost);
  within("offset", one.offset, -kMost, kMost);
  // So that positions are 32-bit.
  const auto extent =
      static_cast<double>(one.out) * static_cast<double>(one.in_step) +
      static_cast<double>(one.kernel) *
          std::fabs(static_cast<double>(one.kernel_step));
  if (extent > static_cast<double>(kMostSize)) {
    master::refuse(
        std::string(name) + ".in_step", std::to_string(one.in_step),
        "windows of at most " + std::to_string(kMostSize) + " positions",
        SWAMP_UNSUPPORTED);
  }
}

// axis_of() returns the axis of all positions.
ConvolutionAxis axis_of(const ConvolutionDimension& one) {
  const auto small = [](auto value) {
    return static_cast<std::int32_t>(value);
  };
  const ConvolutionAxis axis{small(one.in),
                             small(one.out),
                             small(one.kernel),
                             small(one.in_step),
                             small(one.kernel_step),
                             small(one.offset),
                             small(one.divisor),
                             0,
                             0};
  std::size_t first;
  ConvolutionAxis all = axis.part(0, axis.out, first);
  // Also the positions of x that no window has.
  const std::int32_t begin = small(first) - all.before,
                     end = begin + all.positions;
  all.in = axis.in;
  all.offset = axis.offset;
  all.before = std::max(-begin, 0);
  all.positions = std::max(end, axis.in) + all.before;
  return all;
}

void require_shapes(const Convolution& of, bool is_weight) {
  const Checker check("of");
  check.dtype(of.dtype, master::kRowTypes);
  require_dimension("of.height", of.height, is_weight);
  require_dimension("of.width", of.width, is_weight);
  for (const auto& [name, count] :
       {std::pair("of.channels", of.channels), {"of.filters", of.filters}}) {
    if (of.groups != 0 && count != 0 && count % of.groups == 0 &&
        count <= kMostSize) {
      continue;
    }
    master::refuse(
        name, std::to_string(count),
        "a multiple of groups, which is " + std::to_string(of.groups) +
            ", from 1 to " + std::to_string(kMostSize),
        count > kMostSize ? SWAMP_UNSUPPORTED : SWAMP_INVALID_ARGUMENT);
  }
  // As floating-point numbers, whose products do not overflow.
  const auto elements = [&](std::size_t channels, std::size_t height,
                            std::size_t width) {
    return static_cast<double>(of.images) * static_cast<double>(channels) *
           static_cast<double>(height) * static_cast<double>(width);
  };
  if (std::max(elements(of.channels, of.height.in, of.width.in),
               elements(of.filters, of.height.out, of.width.out)) > 0x1p60) {
    master::refuse("of.images", std::to_string(of.images),
                   "images that fit into memory");
  }
  const auto terms = [&](std::size_t height, std::size_t width) {
    return static_cast<double>(height) * static_cast<double>(width) *
           static_cast<double>(of.channels / of.groups);
  };
  if (terms(of.height.kernel, of.width.kernel) >= 0x1p31 ||
      terms(axis_of(of.height).slots(), axis_of(of.width).slots()) > 0x1p40) {
    master::refuse("of.height.kernel", std::to_string(of.height.kernel),
                   "windows that fit into memory", SWAMP_UNSUPPORTED);
  }
}

void require_data(const Convolution& of, const char* name, const void* data) {
  master::require_array(name, data, kScalarTypeBytes[of.dtype], of.images);
}

// ---- Parts

// Block is the filters of a unit, and the channels that they read.
struct Block {
  std::size_t filter, lanes, channel, channels, group_lanes;
};

struct Direct {
  Machine::Impl& machine;
  const Convolution& of;
  // Of a block. If LDM is too small for several, it is 1: the copies of x of
  // one group are smaller, because all its filters read the same.
  std::size_t most_groups = kLanes;

  std::size_t bytes() const { return kScalarTypeBytes[of.dtype]; }
  std::size_t group_filters() const { return of.filters / of.groups; }
  std::size_t group_channels() const { return of.channels / of.groups; }
  std::size_t terms() const {
    return of.height.kernel * of.width.kernel * group_channels();
  }
  // A block has filters of one group, or all filters of several.
  std::size_t block_groups() const {
    return std::clamp<std::size_t>(kLanes / group_filters(), 1,
                                   std::min(most_groups, of.groups));
  }
  std::size_t group_blocks() const { return divided(group_filters(), kLanes); }
  std::size_t block_count() const {
    return divided(of.groups, block_groups()) * group_blocks();
  }
  Block block(std::size_t i) const {
    const std::size_t group = i / group_blocks() * block_groups(),
                      groups = std::min(block_groups(), of.groups - group),
                      first = i % group_blocks() * kLanes,
                      lanes = std::min(kLanes, group_filters() - first);
    return {group * group_filters() + first, groups * lanes,
            group * group_channels(), groups * group_channels(), lanes};
  }

  // An only row is a column, which can be divided: it lies in memory alike.
  bool exchanges() const {
    return of.height.in == 1 && of.height.out == 1 && of.height.kernel == 1;
  }
  const ConvolutionDimension& rows() const {
    return exchanges() ? of.width : of.height;
  }
  const ConvolutionDimension& columns() const {
    return exchanges() ? of.height : of.width;
  }

  ConvolutionArgs args_of(const Block& block) const {
    ConvolutionArgs args{};
    args.rows = axis_of(rows());
    args.columns = axis_of(columns());
    args.lanes = static_cast<std::uint32_t>(block.lanes);
    args.channels = static_cast<std::uint32_t>(block.channels);
    args.group_lanes = static_cast<std::uint32_t>(block.group_lanes);
    args.group_terms = static_cast<std::uint32_t>(group_channels());
    args.x_by_channel = of.x_channels_last ? 0 : 1;
    args.out_by_channel = of.out_channels_last ? 0 : 1;
    args.terms = static_cast<std::uint32_t>(terms());
    args.images = of.images;
    return args;
  }

  // set_unit() makes a unit of an operand `channels` channels and `pixels`
  // positions of images, with `step` elements from unit to unit.
  void set_unit(Operation& operation, int s, bool channels_last,
                std::size_t channels, std::size_t all_channels,
                std::size_t pixels, std::size_t all_pixels,
                std::size_t step) const {
    if (step == 0) operation.operands[s].access = Access::constant;
    operation.set_lines(s, channels_last ? pixels : channels,
                        (channels_last ? channels : pixels) * bytes(),
                        (channels_last ? all_channels : all_pixels) * bytes(),
                        step * bytes());
  }
  // set_operation() sets the units, scratch memory and traffic of an operation
  // whose operand `out` is the result, or its gradient. The units are images,
  // or blocks that are x_step and out_step channels apart.
  void set_operation(Operation& operation, const ConvolutionArgs& args, int out,
                     bool by_image, std::size_t x_step, std::size_t out_step,
                     std::size_t scratch_bytes) const {
    const auto step = [&](bool channels_last, std::size_t channels,
                          std::size_t pixels) {
      return channels * (channels_last && !by_image ? 1 : pixels);
    };
    const std::size_t x_pixels = of.height.in * of.width.in,
                      out_pixels = of.height.out * of.width.out;
    set_unit(operation, slave::ConvolutionOperand::x, of.x_channels_last,
             args.channels, of.channels, args.in_pixels(), x_pixels,
             step(of.x_channels_last, x_step, x_pixels));
    set_unit(operation, out, of.out_channels_last, args.lanes, of.filters,
             args.out_pixels(), out_pixels,
             step(of.out_channels_last, out_step, out_pixels));
    operation.scratch_bytes =
        static_cast<std::uint32_t>(std::min(scratch_bytes, kMost));
    operation.tile_step = 1;
    // 3 floating-point operations count as a byte, as those of a product.
    operation.traffic_bytes += args.out_pixels() * args.terms * 2 * kLanes / 3;
  }
  // Of scratch memory that stays in a CPU's caches.
  static constexpr std::size_t kCacheBytes = std::size_t{512} << 10;
  // Of a row, for each worker.
  static constexpr std::size_t kMost = 16 * kCacheBytes;

  bool fits(const Operation& operation, std::size_t partial_bytes) const {
    return operation.scratch_bytes < kMost &&
           runtime::ldm_need(machine, operation, partial_bytes).fits();
  }

  [[noreturn]] void refuse_ldm() const {
    master::refuse("x",
                   "images of " + std::to_string(of.height.in) + " x " +
                       std::to_string(of.width.in),
                   "rows for " + std::to_string(kMost) +
                       " bytes of scratch memory, and for LDM of " +
                       std::to_string(machine.ldm_bytes) +
                       " bytes (SWAMP_LDM_BYTES)",
                   SWAMP_UNSUPPORTED);
  }

  // x_of() returns the address of an element of x, out_of() of the result.
  const std::byte* x_of(const void* x, std::size_t image, std::size_t channel,
                        std::size_t pixel) const {
    return address(x, of.x_channels_last, image, channel, pixel, of.channels,
                   of.height.in * of.width.in);
  }
  const std::byte* out_of(const void* out, std::size_t image,
                          std::size_t filter, std::size_t pixel) const {
    return address(out, of.out_channels_last, image, filter, pixel, of.filters,
                   of.height.out * of.width.out);
  }
  const std::byte* address(const void* data, bool channels_last,
                           std::size_t image, std::size_t channel,
                           std::size_t pixel, std::size_t channels,
                           std::size_t pixels) const {
    return static_cast<const std::byte*>(data) +
           (image * channels * pixels + (channels_last
                                             ? pixel * channels + channel
                                             : channel * pixels + pixel)) *
               bytes();
  }
};

// ---- Results

struct Results : Direct {
  bool has_bias;

  Operation operation_of(const ConvolutionArgs& args) const {
    using At = slave::ConvolutionOperand;
    Operation operation(master::row_kernel<KernelFamily::convolution>(of.dtype),
                        &args);
    operation.set_unit_bytes(At::weight,
                             args.lanes * args.all_terms() * bytes());
    operation.set_unit_bytes(At::bias, has_bias ? args.lanes * bytes() : 0);
    set_operation(operation, args, At::out, false,
                  group_blocks() > 1 ? 0 : args.channels, args.lanes,
                  slave::ConvolutionScratch(args, false).bytes);
    return operation;
  }

  // Bands holds the operations of `size` rows each for one block or two. The
  // last of a block may have fewer rows.
  struct Bands {
    std::size_t size = 0;
    std::vector<std::size_t> x_rows;
    std::vector<ConvolutionArgs> args;
    std::vector<Operation> operations;
  };

  // add_bands() adds those of a block. The capacity of bands.args suffices,
  // because operations have addresses of arguments.
  void add_bands(const Block& one, Bands& bands) const {
    const ConvolutionArgs all = args_of(one);
    const std::size_t out = rows().out;
    for (std::size_t first = 0; first < out; first += bands.size) {
      std::size_t x_row;
      bands.args.push_back(
          all.band(first, std::min(bands.size, out - first), x_row));
      bands.x_rows.push_back(x_row);
      bands.operations.push_back(operation_of(bands.args.back()));
    }
  }

  // find_bands() makes the bands of the first block, and returns false if LDM
  // is too small for a row.
  bool find_bands(Bands& bands) const {
    const std::size_t out = rows().out, units = of.images * block_count();
    const auto slaves = static_cast<std::size_t>(machine.slaves());
    for (std::size_t size = out;; size = divided(size, 2)) {
      const std::size_t count = divided(out, size);
      bands = {size, {}, {}, {}};
      bands.args.reserve(2 * count);
      add_bands(block(0), bands);
      bool is_large = false, all_fit = true;
      for (const Operation& operation : bands.operations) {
        is_large = is_large || operation.scratch_bytes > kCacheBytes;
        all_fit = all_fit && fits(operation, 0);
      }
      const bool is_few = units * count < slaves && size > 2 * rows().kernel;
      if (all_fit && (size == 1 || (!is_large && !is_few))) return true;
      if (size == 1) return false;
    }
  }

  void run(const void* x, const void* weight, const void* bias, void* out) {
    Bands bands;
    if (!find_bands(bands)) {
      most_groups = 1;
      if (!find_bands(bands)) refuse_ldm();
    }
    const std::size_t count = bands.args.size(), blocks = block_count(),
                      lanes = block(0).lanes;
    // The last block may have fewer filters. Runs of blocks have as many, of
    // one group if it has several.
    if (block(blocks - 1).lanes != lanes) add_bands(block(blocks - 1), bands);
    Workspace& workspace = Workspace::of_this_thread();
    struct BlockRun {
      std::size_t first, count;
    };
    std::vector<BlockRun> runs;
    for (std::size_t b = 0; b < blocks; ++b) {
      const bool continues = b != 0 && block(b).lanes == block(b - 1).lanes &&
                             (group_blocks() == 1 || b % group_blocks() != 0);
      if (!continues) runs.push_back({b, 0});
      ++runs.back().count;
    }
    RowTable table(bands.operations.data(), bands.operations.size(),
                   of.images * count * runs.size(), false, {1, ~std::size_t{0}},
                   workspace.segments());
    const auto part = [&](const void* data, std::size_t element) {
      return data == nullptr
                 ? nullptr
                 : static_cast<const std::byte*>(data) + element * bytes();
    };
    for (std::size_t image = 0; image < of.images; ++image) {
      for (std::size_t i = 0; i < count; ++i) {
        for (const BlockRun& run : runs) {
          const Block one = block(run.first);
          table.add(
              run.count,
              {x_of(x, image, one.channel, bands.x_rows[i] * columns().in),
               part(weight, one.filter * terms()), part(bias, one.filter),
               out_of(out, image, one.filter, i * bands.size * columns().out)},
              one.lanes == lanes ? i : count + i);
        }
      }
    }
    workspace.run(machine, with_memory(table.list()));
  }

  // with_memory() sets the bytes in memory, without the arithmetic.
  master::SegmentList with_memory(master::SegmentList list) const {
    list.memory_bytes = of.images * bytes() *
                        (of.channels * of.height.in * of.width.in +
                         of.filters * of.height.out * of.width.out);
    return list;
  }
};

// ---- The gradient of a weight

struct Gradient : Direct {
  // A part of the terms has at least as many as registers hold.
  std::size_t part_count() const {
    constexpr std::size_t kLeastTerms = 12;
    const auto slaves = static_cast<std::size_t>(machine.slaves());
    return std::clamp<std::size_t>(divided(slaves, block_count()), 1,
                                   divided(terms(), kLeastTerms));
  }

  // scratch_bytes() returns the most that a band needs.
  static std::size_t scratch_bytes(const ConvolutionArgs& args) {
    std::size_t bytes = 0, x_row;
    const std::size_t rows = args.rows.out_count();
    for (std::size_t row = 0; row < rows; row += args.band_rows) {
      const ConvolutionArgs band = args.band(
          row, std::min<std::size_t>(args.band_rows, rows - row), x_row);
      bytes = std::max(bytes, slave::ConvolutionScratch(band, true).bytes);
    }
    return bytes;
  }

  void run(const void* x, const void* gradient, void* out) {
    using At = slave::ConvolutionWeightOperand;
    const std::size_t blocks = block_count(), parts = part_count(),
                      most = divided(terms(), parts),
                      partial_bytes = slave::convolution_partial_bytes(most);
    std::vector<ConvolutionArgs> args(2 * parts);
    std::vector<Operation> operations(2 * parts);
    for (std::size_t i = 0; i < 2 * parts; ++i) {
      ConvolutionArgs& one = args[i];
      one = args_of(block(i < parts ? 0 : blocks - 1));
      const std::size_t first = std::min(i % parts * most, terms());
      one.first_term = static_cast<std::uint32_t>(first);
      one.terms = static_cast<std::uint32_t>(std::min(most, terms() - first));
      one.band_rows = static_cast<std::uint32_t>(one.rows.out);
      while (one.band_rows > 1 && scratch_bytes(one) > kCacheBytes) {
        one.band_rows = (one.band_rows + 1) / 2;
      }
      operations[i] = Operation(
          master::row_kernel<KernelFamily::convolution_weight>(of.dtype), &one);
      set_operation(operations[i], one, At::g, true, of.channels, of.filters,
                    scratch_bytes(one));
      if (fits(operations[i], partial_bytes)) continue;
      if (most_groups == 1) refuse_ldm();
      most_groups = 1;
      return run(x, gradient, out);
    }
    Workspace& workspace = Workspace::of_this_thread();
    RowTable table(operations.data(), operations.size(), blocks * parts, true,
                   {of.images, ~std::size_t{0}}, workspace.segments());
    for (std::size_t b = 0; b < blocks; ++b) {
      const Block one = block(b);
      for (std::size_t i = 0; i < parts; ++i) {
        table.add(
            of.images,
            {x_of(x, 0, one.channel, 0), out_of(gradient, 0, one.filter, 0)},
            one.lanes == args[0].lanes ? i : parts + i);
      }
    }
    workspace.run_by_grain(machine, table.list(), partial_bytes);
    const auto* const partials = workspace.partials<std::byte>();
    runtime::run_parts(
        machine, blocks * parts, most * kLanes * 2 * sizeof(float),
        [&](std::size_t begin, std::size_t end) {
          for (std::size_t i = begin; i < end; ++i) {
            const Block one = block(i / parts);
            const ConvolutionArgs& part = args[i % parts];
            const auto* sums = reinterpret_cast<const float*>(
                partials + i * partial_bytes +
                slave::convolution_partial_bytes(part.terms) -
                part.terms * kLanes * sizeof(float));
            std::size_t to = one.filter * terms() + part.first_term;
            for (std::size_t t = 0; t < part.terms; ++t, ++to, sums += kLanes) {
              for (std::size_t lane = 0; lane < one.lanes; ++lane) {
                master::store_rounded(of.dtype, sums[lane], out,
                                      to + lane * terms());
              }
            }
          }
        });
  }
};

}  // namespace

void convolve(const Convolution& of, const void* x, const void* weight,
              const void* bias, void* out, Machine* machine) {
  require_shapes(of, false);
  require_data(of, "x", x);
  require_data(of, "weight", weight);
  if (bias != nullptr) require_data(of, "bias", bias);
  require_data(of, "out", out);
  if (of.images == 0) return;
  Results{{master::impl_of(machine), of}, bias != nullptr}.run(x, weight, bias,
                                                               out);
}

void convolve_weight(const Convolution& of, const void* x, const void* gradient,
                     void* out, Machine* machine) {
  require_shapes(of, true);
  require_data(of, "x", x);
  require_data(of, "gradient", gradient);
  Gradient all{{master::impl_of(machine), of}};
  master::require_array("out", out, all.bytes(), 1);
  if (of.images == 0) {
    std::memset(out, 0, of.filters * all.terms() * all.bytes());
  } else {
    all.run(x, gradient, out);
  }
}

void transpose(std::size_t batch, std::size_t rows, std::size_t columns,
               ScalarType dtype, const void* x, void* out, Machine* machine) {
  using At = slave::TransposeOperand;
  // A unit is a part of a matrix that fits into any LDM.
  constexpr std::size_t kUnitRows = 32, kUnitColumns = 64;
  Checker("x").dtype(dtype, master::kRowTypes);
  for (const auto& [name, size] :
       {std::pair("rows", rows), {"columns", columns}}) {
    Checker("x").at_most(name, size, kMostSize);
  }
  const std::size_t bytes = kScalarTypeBytes[dtype],
                    count = rows == 0 || columns == 0 ? 0 : batch;
  master::require_array("x", x, bytes, count);
  master::require_array("out", out, bytes, count);
  if (count == 0) return;
  // Of all rows of a block or the last ones, then the same of columns.
  slave::TransposeArgs args[4];
  Operation operations[4];
  const auto size_of = [](std::size_t all, std::size_t block, bool last) {
    return last && all % block != 0 ? all % block : std::min(all, block);
  };
  for (std::size_t i = 0; i < 4; ++i) {
    const std::size_t lanes = size_of(rows, kUnitRows, i >= 2),
                      terms = size_of(columns, kUnitColumns, i % 2 != 0);
    args[i] = {static_cast<std::uint32_t>(lanes),
               static_cast<std::uint32_t>(terms)};
    Operation& operation = operations[i];
    operation =
        Operation(master::row_kernel<KernelFamily::transpose>(dtype), &args[i]);
    operation.set_lines(At::x, lanes, terms * bytes, columns * bytes,
                        kUnitColumns * bytes);
    operation.set_lines(At::out, terms, lanes * bytes, rows * bytes,
                        kUnitColumns * rows * bytes);
  }
  const std::size_t whole = columns / kUnitColumns;
  Workspace& workspace = Workspace::of_this_thread();
  RowTable table(operations, 4, batch * divided(rows, kUnitRows) * 2, false,
                 {1, ~std::size_t{0}}, workspace.segments());
  for (std::size_t i = 0; i < batch; ++i) {
    for (std::size_t row = 0; row < rows; row += kUnitRows) {
      const std::size_t kind = rows - row < kUnitRows ? 2 : 0;
      const auto add = [&](std::size_t units, std::size_t column,
                           std::size_t operation) {
        if (units == 0) return;
        const std::size_t first = i * rows * columns;
        table.add(units,
                  {static_cast<const std::byte*>(x) +
                       (first + row * columns + column) * bytes,
                   static_cast<std::byte*>(out) +
                       (first + column * rows + row) * bytes},
                  operation);
      };
      add(whole, 0, kind);
      add(columns % kUnitColumns != 0 ? 1 : 0, whole * kUnitColumns, kind + 1);
    }
  }
  workspace.run(master::impl_of(machine), table.list());
}

}  // namespace swamp
