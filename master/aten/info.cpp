// The operators swamp::version and swamp::info.
#include <torch/version.h>

#include <nlohmann/json.hpp>
#include <string>

#include "master/aten/checks.h"
#include "swamp/aten.h"
#include "swamp/c_api.h"
#include "swamp/machine.h"
#include "swamp/product.h"

namespace swamp::aten {
std::string version() { return swamp_version(); }

std::string info() {
  const MachineInfo info =
      translated([] { return Machine::default_machine().info(); });
  const MachineConfig& chosen = info.chosen;
  using Json = nlohmann::ordered_json;
  const Json object = {
      {"version", version()},
      {"torch", TORCH_VERSION},
      {"machine", chosen.machine},
      {"core_groups", chosen.core_groups},
      {"slaves_per_group", chosen.slaves_per_group},
      {"ldm_bytes", chosen.ldm_bytes},
      {"backend", chosen.backend},
      {"transfer", chosen.transfer},
      {"isa", chosen.isa},
      {"bind", chosen.bind},
      {"cpu", info.cpu},
      {"cores", info.cores},
      {"threads", info.threads},
      {"topology", info.topology},
      {"compiler", SWAMP_COMPILER},
      {"products", is_product_fast() ? "fused multiply-add" : "emulated, slow"},
      {"available", Json::object({{"machine", info.machines},
                                  {"backend", info.backends},
                                  {"transfer", info.transfers},
                                  {"isa", info.isas},
                                  {"bind", info.binds}})}};
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace swamp::aten
