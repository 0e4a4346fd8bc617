#include "telemetry/step_record.h"

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

namespace lockstep {

namespace {
using Json = nlohmann::ordered_json;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }
Json number(const std::optional<double>& value) { return value ? number(*value) : Json(nullptr); }

Json bytes(const BytesByTag& by_tag) {
  Json object = Json::object();
  for (const auto& [tag, count] : by_tag) object[tag] = count;
  return object;
}
}  // namespace

std::string to_json_line(const StepRecord& r) {
  const Json line{{"step", r.step},
                  {"loss", number(r.loss)},
                  {"loss_z", number(r.loss_z)},
                  {"grad_norm", number(r.grad_norm)},
                  {"lr", number(r.lr)},
                  {"step_ms", number(r.seconds * 1e3)},
                  {"tokens_per_s", number(r.tokens_per_s)},
                  {"model_flops_per_s", number(r.model_flops_per_s)},
                  {"mfu", number(r.mfu)},
                  {"updated", r.updated},
                  {"bytes", bytes(r.bytes)},
                  {"peak_bytes", bytes(r.peak_bytes)},
                  {"time", number(r.time)}};
  return line.dump() + "\n";
}

std::string to_json_line(const EvalRecord& r) {
  return Json{{"step", r.step}, {"eval_loss", number(r.loss)}, {"time", number(r.time)}}.dump() + "\n";
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace lockstep
