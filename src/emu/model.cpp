#include "emu/model.h"

#include <nlohmann/json.hpp>

namespace strobe::emu {
namespace {

using Json = nlohmann::ordered_json;

double op(const Counters& c, core::Op which) {
  return static_cast<double>(c.ops[static_cast<int>(which)]);
}

}  // namespace

std::vector<UnitCycles> cycles(const Report& report, const MachineModel& m) {
  const Counters& c = report.counters;
  double hbm = 0, reduced = 0;
  for (const TensorTraffic& t : report.tensors) {
    hbm += static_cast<double>(t.bytes_read + t.bytes_written);
    reduced += static_cast<double>(t.bytes_reduced);
  }
  const double special = op(c, core::Op::kExp) + op(c, core::Op::kDivide);
  const double floats = op(c, core::Op::kRescale) + op(c, core::Op::kMax) + op(c, core::Op::kSum) +
                        op(c, core::Op::kScale) + op(c, core::Op::kOther);
  // Conflicts cost a wavefront of 128 bytes each.
  const double shared = static_cast<double>(c.shared_bytes_read + c.shared_bytes_written) +
                        128.0 * static_cast<double>(c.bank_conflicts);
  return {{"tensor core", static_cast<double>(c.mma_flops) / (m.mma_flops * m.sms)},
          {"special functions", special / (m.special_ops * m.sms)},
          {"float32", floats / (m.float_ops * m.sms)},
          {"shared memory", shared / (m.shared_bytes * m.sms)},
          {"device memory", hbm / m.hbm_bytes_per_second * m.clock_hz},
          {"L2 reductions", reduced / m.l2_reduced_bytes}};
}

std::string report_json(const Report& report, const MachineModel& machine) {
  Json hazards = Json::array();
  for (const Hazard& h : report.hazards) {
    hazards.push_back({{"kind", name(h.kind)},
                       {"cta", h.cta},
                       {"thread", h.thread},
                       {"file", h.here.file},
                       {"line", h.here.line},
                       {"message", h.message}});
  }
  Json tensors = Json::array();
  for (const TensorTraffic& t : report.tensors) {
    tensors.push_back({{"name", t.name},
                       {"bytes_read", t.bytes_read},
                       {"bytes_written", t.bytes_written},
                       {"bytes_reduced", t.bytes_reduced}});
  }
  const Counters& c = report.counters;
  Json ops = Json::object();
  for (int i = 0; i < static_cast<int>(core::Op::kCount); ++i) ops[core::kOpNames[i]] = c.ops[i];
  Json units = Json::object();
  for (const UnitCycles& unit : cycles(report, machine)) units[unit.unit] = unit.cycles;
  const Json json = {{"hazards", std::move(hazards)},
                     {"hazards_dropped", report.hazards_dropped},
                     {"tensors", std::move(tensors)},
                     {"counters",
                      {{"ctas", c.ctas},
                       {"mma_flops", c.mma_flops},
                       {"ops", std::move(ops)},
                       {"shared_bytes_read", c.shared_bytes_read},
                       {"shared_bytes_written", c.shared_bytes_written},
                       {"shared_wavefronts", c.shared_wavefronts},
                       {"bank_conflicts", c.bank_conflicts},
                       {"cross_warp_bytes", c.cross_warp_bytes},
                       {"shuffles", c.shuffles},
                       {"barriers", c.barriers},
                       {"atomics", c.atomics},
                       {"fiber_switches", c.switches}}},
                     {"machine", machine.name},
                     {"clock_hz", machine.clock_hz},
                     {"cycles", std::move(units)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace strobe::emu
