#include "spec/run/run_extent.h"

#include <fmt/format.h>

#include "base/error.h"
#include "spec/model/model_flops.h"
#include "spec/model/model_units.h"

namespace lockstep {

namespace {

constexpr double kMostCounted = 0x1p63;
constexpr std::int64_t kMostListed = 1 << 19;  // about two seconds
constexpr std::int64_t kOfUnit = 32;           // what a unit takes beside its actions

// An upper bound: what is recomputed, and the largest type and all tensors of a block.
void check_counts(const RunSpec& spec) {
  const auto d = [](std::int64_t n) { return static_cast<double>(n); };
  const LayoutSpec& layout = spec.layout;
  const ModelSpec& m = spec.model;
  const std::int64_t samples = share_of(spec.train.global_batch, layout, 0).count;
  const double flops = 1.5 * model_flops(m, samples, spec.data.seq) / d(layout.cp * layout.tp);
  const double of_layer = 24 * d(m.width) + 8 * d(m.ffn_width) + 12 * d(m.heads) * d(m.head_width);
  const double bytes = 8 * d(samples) * d(spec.data.seq) * (d(m.layers + 2) * of_layer + d(m.vocabulary));
  if (flops < kMostCounted && bytes < kMostCounted) return;
  throw UserError(ExitCode::usage, "a rank's step has more than 2^63 operations, or bytes of activations",
                  "use a shorter data.seq, a smaller train.global_batch, or more ranks");
}

// The step is listed unit by unit and micro-batch by micro-batch, of all stages.
void check_lists(const RunSpec& spec) {
  const LayoutSpec& layout = spec.layout;
  const ModelUnits all{spec.model.layers, layout.wrap.is_of_halves()};
  const std::int64_t units = all.count(), each = kOfUnit + 2 * layout.micro + layout.pp;
  if (units * each <= kMostListed) return;
  const std::int64_t micro = (kMostListed / units - kOfUnit - layout.pp) / 2,
                     layers = (kMostListed / each - 2) / all.per_block();
  throw UserError(
      ExitCode::usage,
      fmt::format("{} layers, {} micro-batch{} and {} stage{} make lists of actions that are too long",
                  spec.model.layers, layout.micro, layout.micro == 1 ? "" : "es", layout.pp, layout.pp == 1 ? "" : "s"),
      micro >= 1    ? fmt::format("use layout.micro = {} or less", micro)
      : layers >= 1 ? fmt::format("use model.layers = {} or less", layers)
                    : "use fewer micro-batches, or stages");
}

}  // namespace

void check_extent(const RunSpec& spec) {
  check_counts(spec);
  check_lists(spec);
}

bool is_possible(const RunSpec& spec) {
  try {
    validate(spec, [](std::string_view, std::string_view) { return std::string(); });
    check_extent(spec);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

}  // namespace lockstep
