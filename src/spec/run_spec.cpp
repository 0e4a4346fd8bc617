#include "spec/run_spec.h"

#include "base/integers.h"
#include "spec/model_flops.h"
#include "spec/vocabulary_remedy.h"

namespace lockstep {
namespace {

// Tokens of a whole run: counts and products of them stay within 63 bits.
constexpr std::int64_t kMaxRunTokens = std::int64_t{1} << 60;
constexpr double kMostCounted = 0x1p63;
constexpr std::int64_t kMostListed = 1 << 19;  // about two seconds
constexpr std::int64_t kOfUnit = 32;           // what a unit takes beside its actions

class Checker {
 public:
  Checker(const RunSpec& spec, const KeyPlace& place) : spec_(spec), place_(place) {}

  void source() const {
    const DataSpec& data = spec_.data;
    std::string_view first, second;
    for (const auto& [key, given] :
         {std::pair("text", !data.text.empty()), std::pair("tokens", !data.tokens.empty()),
          std::pair("synthetic", data.synthetic.has_value()), std::pair("example", data.example)}) {
      if (given) (first.empty() ? first : second) = key;
    }
    if (first.empty()) {
      fail("data", "", "[data] names no source",
           "add one of text = \"FILE or FOLDER\", tokens = \"FILE\", [data.synthetic] or example = true");
    }
    if (!second.empty()) {
      fail("data", second, fmt::format("[data] names both {} and {}", first, second), "keep one of the two");
    }
    if (data.synthetic && data.synthetic->branching > data.synthetic->vocabulary) {
      fail("data.synthetic", "branching",
           fmt::format("branching ({}) is more than the synthetic vocabulary ({})", data.synthetic->branching,
                       data.synthetic->vocabulary),
           fmt::format("use branching = {} or less, or a larger vocabulary", data.synthetic->vocabulary));
    }
    if (data.synthetic && data.synthetic->order == 2 && data.synthetic->vocabulary > kMaxSyntheticPairs) {
      fail("data.synthetic", "vocabulary",
           fmt::format("a synthetic vocabulary of {} is too large for order 2", data.synthetic->vocabulary),
           fmt::format("use at most {}, or order = 1", kMaxSyntheticPairs));
    }
  }

  void fits_model() const {
    const DataSpec& data = spec_.data;
    if (data.seq > spec_.model.max_positions) {
      fail("data", "seq",
           fmt::format("seq ({}) is beyond the model's max_positions ({})", data.seq, spec_.model.max_positions),
           fmt::format("use seq = {} or a model with more positions", spec_.model.max_positions));
    }
    // What a token file holds is known only when it is opened.
    if (!data.tokens.empty()) return;
    const std::int64_t needed = data.synthetic ? data.synthetic->vocabulary : kByteVocabulary;
    if (spec_.model.vocabulary < needed) {
      fail("model", "vocabulary",
           fmt::format("the model's vocabulary ({}) is smaller than the data's ({}, {})", spec_.model.vocabulary,
                       needed, data.synthetic ? "synthetic" : "text as bytes"),
           vocabulary_remedy(spec_, needed));
    }
  }

  void batch() const {
    const std::int64_t batch = spec_.train.global_batch;
    check_layout(batch, spec_.layout, [&](std::string_view key, const std::string& problem, const std::string& remedy) {
      fail("layout", key, problem, remedy);
    });
    check_model_layout(spec_.model, spec_.data.seq, spec_.layout,
                       [&](std::string_view key, const std::string& problem, const std::string& remedy) {
                         fail("layout", key, problem, remedy);
                       });
    const auto samples = checked_mul(spec_.train.steps, batch);
    const auto tokens = samples ? checked_mul(*samples, spec_.data.seq) : std::nullopt;
    if (!tokens || *tokens > kMaxRunTokens) {
      fail("train", "steps", "steps times global_batch times seq is more than 2^60 tokens",
           "check for a size with digits too many");
    }
  }

  // What a step does is listed, unit by unit and micro-batch by micro-batch, of all stages, and the model is made:
  // about as long as reading the lists takes.
  void lists() const {
    const LayoutSpec& layout = spec_.layout;
    const std::int64_t units = spec_.model.layers + 2, each = kOfUnit + 2 * layout.micro + layout.pp;
    if (units * each <= kMostListed) return;
    const std::int64_t micro = (kMostListed / units - kOfUnit - layout.pp) / 2, layers = kMostListed / each - 2;
    fail("layout", layout.micro >= layout.pp ? "micro" : "pp",
         fmt::format("{} layers, {} micro-batch{} and {} stage{} make lists of actions that are too long",
                     spec_.model.layers, layout.micro, layout.micro == 1 ? "" : "es", layout.pp,
                     layout.pp == 1 ? "" : "s"),
         micro >= 1    ? fmt::format("use micro = {} or less", micro)
         : layers >= 1 ? fmt::format("use layers = {} or less", layers)
                       : "use fewer micro-batches, or stages");
  }

  // What is counted of one rank's step, operations and bytes, stays within 63 bits. An upper bound: what is computed
  // again, and the largest type and all tensors of a block.
  void counts() const {
    const auto d = [](std::int64_t n) { return static_cast<double>(n); };
    const LayoutSpec& layout = spec_.layout;
    const ModelSpec& m = spec_.model;
    const std::int64_t samples = share_of(spec_.train.global_batch, layout, 0).count;
    const double flops = 1.5 * model_flops(m, samples, spec_.data.seq) / d(layout.cp * layout.tp);
    const double bytes = 8 * d(samples) * d(spec_.data.seq) *
                         (d(m.layers + 2) * (24 * d(m.width) + 8 * d(m.ffn_width) + 12 * d(m.heads) * d(m.head_width)) +
                          d(m.vocabulary));
    if (flops < kMostCounted && bytes < kMostCounted) return;
    fail("data", "seq", "a rank's step has more than 2^63 operations, or bytes of activations",
         "use a shorter seq, a smaller global_batch, or more ranks");
  }

  void memory() const {
    const LayoutSpec& layout = spec_.layout;
    if (spec_.memory.gathered == 0 || (layout.zero == 3 && layout.reshard == Reshard::forward)) return;
    fail("memory", "gathered",
         fmt::format("gathered = {} does nothing: {}", spec_.memory.gathered,
                     layout.zero == 3 ? "with reshard = \"never\" all weights stay" : "only zero = 3 gathers weights"),
         "remove it, or use zero = 3 with reshard = \"forward\"");
  }

  void schedule() const {
    const ScheduleSpec& schedule = spec_.schedule;
    const std::int64_t steps = spec_.train.steps;
    if (schedule.warmup > steps && steps > 0) {  // a run of no steps has no rates
      fail("optim", "warmup", fmt::format("warmup ({}) is longer than the run ({} steps)", schedule.warmup, steps),
           fmt::format("use warmup = {} or less, or more steps", steps));
    }
    if (schedule.kind != RateKind::wsd) return;
    if (schedule.decay < 1) {
      fail("optim", "decay", "schedule \"wsd\" has no decay",
           steps > schedule.warmup ? fmt::format("say how many of the last steps decay, as in decay = {}",
                                                 std::max<std::int64_t>(1, (steps - schedule.warmup) / 5))
                                   : "train for more steps than warmup, and say how many of the last decay");
    }
    if (schedule.decay > steps - schedule.warmup) {
      fail("optim", "decay",
           fmt::format("warmup ({}) and decay ({}) are together longer than the run ({} steps)", schedule.warmup,
                       schedule.decay, steps),
           fmt::format("use train.steps = {} or more, or shorten one of the two", schedule.warmup + schedule.decay));
    }
  }

  void evaluation() const {
    if (spec_.train.eval_every > 0 && spec_.data.eval_share == 0) {
      fail("train", "eval_every",
           fmt::format("eval_every is {} but eval_share is 0, so no sample is for evaluation", spec_.train.eval_every),
           "set eval_share = 0.05 in [data], or eval_every = 0");
    }
  }

  void precision() const {
    const PrecisionSpec& precision = spec_.precision;
    if (precision.gradients != StateType::full && precision.compute != Precision::bf16) {
      fail("precision", "gradients",
           fmt::format("gradients = \"{}\" needs weights that compute in it, and compute is \"{}\"",
                       name_of(precision.gradients), name_of(precision.compute)),
           "set compute = \"bf16\", or leave gradients out");
    }
    if (precision.moments != StateType::full && spec_.optimizer.kind == OptimizerKind::sgd &&
        spec_.optimizer.momentum == 0) {
      fail("precision", "moments", "sgd with momentum = 0 keeps no moments", "leave moments out");
    }
  }

 private:
  [[noreturn]] void fail(std::string_view section, std::string_view key, const std::string& problem,
                         const std::string& remedy) const {
    throw UserError(ExitCode::usage, place_(section, key) + ": " + problem, remedy);
  }

  const RunSpec& spec_;
  const KeyPlace& place_;
};

}  // namespace

void validate(const RunSpec& spec, const KeyPlace& place) {
  const Checker check(spec, place);
  check.source();
  check.fits_model();
  check.batch();
  check.counts();
  check.lists();
  check.memory();
  check.schedule();
  check.evaluation();
  check.precision();
}

}  // namespace lockstep
