// The overflow report: where, in how many tensors, how many elements.
#include <gtest/gtest.h>

#include "machines.h"
#include "master/launch.h"
#include "sample_list.h"

namespace swamp::test {
namespace {

OverflowReport report_of(SampleList list, Machine& machine,
                         float inv_scale = 0.5f) {
  float found_inf = 0.0f;
  OverflowReport report{9, 9, 9, 9};
  amp_foreach_non_finite_check_and_unscale_(list.tensors(), found_inf,
                                            inv_scale, &report, &machine);
  EXPECT_EQ(found_inf, report.element_count == 0 ? 0.0f : 1.0f);
  return report;
}

SampleList plain_list() {
  SampleList list;
  Random random(17);
  list.add(kFloat32, 100, 1, random);
  list.add(kFloat16, 40001, 1, random);  // cut between slaves
  list.add(kBFloat16, 0, 1, random);
  list.add(kFloat64, 30000, 1, random);
  list.add(kBFloat16, 7, 3, random);
  return list;
}

// plant() puts a nan of the tensor's dtype.
void plant(SampleList& list, std::size_t tensor, std::size_t index) {
  list.set(tensor, index, format_of(list.type(tensor)).quiet_nan());
}

template <class Body>
void on_machines(Body body) {
  const std::vector<MachineShape> shapes = {
      {1, 1, 16384}, {1, 7, 16384}, {1, 64, 4096}};
  for (const MachineConfig& config : machine_configs(shapes, false)) {
    SCOPED_TRACE(to_text(config));
    body(*make_machine(config));
    if (testing::Test::HasFailure()) return;
  }
}

TEST(UnscaleReport, LowestTensorThenLowestIndex) {
  SampleList list = plain_list();
  plant(list, 3, 2);
  plant(list, 3, 29999);
  plant(list, 1, 33000);
  plant(list, 1, 20000);
  on_machines([&](Machine& machine) {
    EXPECT_TRUE(same_report(report_of(list, machine), {1, 20000, 2, 4}));
    EXPECT_TRUE(same_report(report_of(list, machine, 1.0f), {1, 20000, 2, 4}));
  });
}

// One in every grain: a tensor that many slaves share counts once.
TEST(UnscaleReport, TensorsCutBetweenSlavesCountOnce) {
  SampleList list = plain_list();
  std::uint64_t planted = 0;
  for (const std::size_t tensor : {1u, 3u}) {
    for (std::size_t i = 8191; i < list.element_count(tensor); i += 8192) {
      plant(list, tensor, i);
      ++planted;
    }
    plant(list, tensor, 8192);
    ++planted;
  }
  plant(list, 4, 6);
  on_machines([&](Machine& machine) {
    EXPECT_TRUE(
        same_report(report_of(list, machine), {1, 8191, 3, planted + 1}));
  });
}

TEST(UnscaleReport, FirstAndLastElementOfEveryTensor) {
  const SampleList clean = plain_list();
  on_machines([&](Machine& machine) {
    EXPECT_TRUE(same_report(report_of(clean, machine), {}));
    for (std::size_t t = 0; t < clean.tensor_count(); ++t) {
      const std::size_t count = clean.element_count(t);
      if (count == 0) continue;
      for (const std::size_t index : {std::size_t{0}, count - 1}) {
        SampleList list = clean;
        plant(list, t, index);
        EXPECT_TRUE(same_report(report_of(list, machine), {t, index, 1, 1}));
      }
    }
  });
}

TEST(UnscaleReport, AllElementsNonFinite) {
  SampleList list = plain_list();
  std::uint64_t elements = 0;
  for (std::size_t t = 0; t < list.tensor_count(); ++t) {
    for (std::size_t i = 0; i < list.element_count(t); ++i) plant(list, t, i);
    elements += list.element_count(t);
  }
  on_machines([&](Machine& machine) {
    EXPECT_TRUE(same_report(report_of(list, machine), {0, 0, 4, elements}));
  });
}

// reduce() by hand: the same tensor in neighbours, with clean slaves between.
TEST(UnscaleReport, ReduceCountsATensorOnce) {
  runtime::SlaveResult results[5];
  const auto flag = [&](int slave, std::uint64_t segment, std::uint64_t index,
                        std::uint64_t count) {
    Result tile;
    tile.flag(index, count);
    results[slave].add(segment, tile);
  };
  EXPECT_EQ(master::reduce(results, 5).flagged_elements, 0u);
  EXPECT_EQ(master::reduce(results, 5).first_segment,
            runtime::SlaveResult::kNone);
  flag(1, 2, 50, 1);
  flag(1, 4, 10, 2);
  flag(3, 4, 900, 3);
  flag(4, 4, 1800, 1);
  flag(4, 5, 0, 1);
  const runtime::SlaveResult all = master::reduce(results, 5);
  EXPECT_EQ(all.first_segment, 2u);
  EXPECT_EQ(all.first_index, 50u);
  EXPECT_EQ(all.flagged_segments, 3u);
  EXPECT_EQ(all.flagged_elements, 8u);
}

}  // namespace
}  // namespace swamp::test
