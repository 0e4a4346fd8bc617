// The optimizers, and the norm and step control before them. `dtype` is the gradient's type.
#include "kernels/optimizers.h"

#include "kernels/norm_sum.h"
#include "kernels/step_control.h"
#include "support/cases/families.h"
#include "support/reference_ops.h"
#include "support/step_controls.h"

namespace lockstep::tests {

namespace {
using Tensors = std::span<const Tensor>;
using Hosts = std::span<HostTensor>;
constexpr reference::OptimizerOptions kOptions{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1, .decayed = 0};

KernelCase norm(DType dtype, std::int64_t n, bool accumulate, std::int64_t gap = 0) {
  KernelCase made{.op = "norm_sum", .shape = label({n}) + (accumulate ? "_accumulate" : ""), .dtype = dtype};
  if (gap > 0) made.shape += "_unaligned";
  const bool narrow = dtype == DType::f16;
  made.operands = {{"bins", {kNormBins}, DType::i64, accumulate ? Role::inout : Role::out, constant(5)},
                   {"x", {n}, dtype, Role::in, narrow ? magnitudes(-20, 10) : magnitudes(-60, 60), {gap}}};
  if (accumulate) made.operands[0].fill = [](std::uint64_t, std::int64_t i) { return i == kNormDigits ? 0.0 : 5.0; };
  made.run = [accumulate](Tensors t, Stream& stream) {
    norm_sum({.bins = t[0], .x = t[1], .accumulate = accumulate}, stream);
  };
  return made;
}

// `exponent` of the loss scale, which grows after this step where `growth` is 3.
KernelCase control(double clip, double square, int exponent = 0, std::int64_t growth = 0) {
  KernelCase made{.op = "step_control", .shape = "", .dtype = DType::f64};
  made.shape =
      "clip" + std::to_string(static_cast<int>(clip * 100)) + "_square" + std::to_string(static_cast<int>(square));
  if (exponent > 0) made.shape += "_scale" + std::to_string(exponent) + "_growth" + std::to_string(growth);
  // All but learning rate, step, halted and the loss scale is for the kernel to write.
  made.operands = {{"control",
                    {kStepControls},
                    DType::f64,
                    Role::inout,
                    listed({0.01, 7, NAN, NAN, NAN, 0, static_cast<double>(exponent), 2, NAN, NAN})},
                   {"bins", {kNormBins}, DType::i64, Role::in, constant(0)}};
  made.prepare = [square](Hosts t) {
    std::vector<std::int64_t> bins(kNormBins);
    norm_add(bins, square);
    norm_add(bins, square);
    for (int i = 0; i < kNormBins; ++i) t[1].value[i] = static_cast<double>(bins[i]);
  };
  made.run = [=](Tensors t, Stream& stream) {
    step_control({.control = t[0],
                  .bins = t[1],
                  .clip = clip,
                  .beta1 = kOptions.beta1,
                  .beta2 = kOptions.beta2,
                  .growth = growth,
                  .most_exponent = 20},
                 stream);
  };
  made.reference = [=](Hosts t) {
    const double size = std::sqrt(2 * square) / std::pow(2.0, exponent);
    t[0].value[kNorm] = size;
    t[0].value[kGradientScale] = (clip == 0 ? 1 : std::min(1.0, clip / (size + 1e-6))) / std::pow(2.0, exponent);
    if (growth > 0) {
      const bool grows = growth <= 3;
      t[0].value[kLossExponent] = std::min(exponent + (grows ? 1 : 0), 20);
      t[0].value[kScaledSteps] = grows ? 0 : 3;
    }
    t[0].value[kFinite] = 1;
    t[0].value[kStep] = 8;
    t[0].value[kFirstCorrection] = 1 - std::pow(kOptions.beta1, 8);
    t[0].value[kSecondCorrection] = std::sqrt(1 - std::pow(kOptions.beta2, 8));
  };
  return made;
}

KernelCase scaled_loss(DType dtype) {
  KernelCase made{.op = "scale_loss", .shape = "1", .dtype = dtype};
  made.operands = {{"scaled", {1}, dtype, Role::out},
                   {"weight", {1}, dtype, Role::in, constant(0.3)},
                   {"control", {kStepControls}, DType::f64, Role::in, listed({0.01, 7, 1, 1, 1, 0, 13, 2, 0, 0})}};
  made.run = [](Tensors t, Stream& stream) { scale_loss({.scaled = t[0], .weight = t[1], .control = t[2]}, stream); };
  made.reference = [](Hosts t) { t[0].value[0] = 8192 * t[1].value[0]; };
  return made;
}

struct Update {
  std::int64_t n;
  DType master;
  std::optional<DType> weight;
  double finite = 1;
  bool narrow_moments = false;  // bf16, rounded by chance
  std::int64_t gap = 0;         // operands begin off any alignment
  DType moment() const { return narrow_moments ? DType::bf16 : accumulator_of(master); }
};
constexpr std::int64_t kFirst = 1024;

// Parts of many tensors, at odd places: contiguous, in rows that are apart here or there, in rows that alternate, and
// with places between them that are of none.
const std::vector<RoundingRun>& tensors_of_update() {
  static const std::vector<RoundingRun> all = [] {
    std::vector<RoundingRun> runs{RoundingRun::flat(900, 130, 11, 5)};
    std::int64_t at = 1030;
    for (std::uint64_t key = 20; at < 30000; ++key) {
      const std::int64_t rows = 3 + static_cast<std::int64_t>(key % 5), row = 7 + static_cast<std::int64_t>(key % 12);
      runs.push_back(RoundingRun::flat(at, row, key, 2));
      at += row;
      const std::int64_t pitch = row + 9;
      runs.push_back({at, at + rows * pitch - 2, pitch, 0, row, key + 1000, 3, 50});
      runs.push_back({at, at + rows * pitch - 2, pitch, row + 1, pitch - 2, key + 1000, 30, 50});
      at += rows * pitch;
    }
    return runs;
  }();
  return all;
}

// State that was rounded by chance is either neighbour of what it stands for: half a step more than rounding to
// nearest may cost, said as the size of the terms that are allowed to be lost.
void allow_either_neighbour(HostTensor& state) {
  for (std::size_t i = 0; i < state.value.size(); ++i)
    state.magnitude[i] = std::max(state.magnitude[i], 0x1p11 * std::abs(state.value[i]));
}

std::vector<Operand> update_operands(DType gradient, const Update& u) {
  return {{"master", {u.n}, u.master, Role::inout},
          {"gradient", {u.n}, gradient, Role::in, normal(0.1)},
          {"control",
           {kStepControls},
           DType::f64,
           Role::in,
           listed(step_controls({.rate = 0.01,
                                 .step = 3,
                                 .scale = 0.25,
                                 .finite = u.finite,
                                 .beta1 = kOptions.beta1,
                                 .beta2 = kOptions.beta2}))}};
}

std::string update_label(DType gradient, const Update& u) {
  std::string text = label({u.n}) + "_master_" + std::string(name_of(u.master));
  if (u.weight) text += "_weight_" + std::string(name_of(*u.weight));
  if (u.finite == 0) text += "_not_finite";
  if (u.narrow_moments) text += "_moments_bf16";
  if (u.gap > 0) text += "_unaligned";
  return text + "_gradient_" + std::string(name_of(gradient));
}

void shift_starts(KernelCase& made, const Update& u) {
  for (Operand& operand : made.operands)
    if (operand.name != "control") operand.gaps[0] = u.gap;
}

KernelCase adam(DType gradient, const Update& u) {
  KernelCase made{
      .op = "adamw", .shape = update_label(gradient, u), .dtype = gradient, .operands = update_operands(gradient, u)};
  made.operands.push_back({"m", {u.n}, u.moment(), Role::inout, normal(0.1)});
  made.operands.push_back({"v", {u.n}, u.moment(), Role::inout, [](std::uint64_t seed, std::int64_t i) {
                             return 0.01 * uniform_number(seed, i);
                           }});
  const bool copied = u.weight.has_value();
  if (copied) made.operands.push_back({"weight", {u.n}, *u.weight, Role::out});
  shift_starts(made, u);
  auto options = kOptions;
  options.decayed = u.n / 2 + 1;
  if (options.decayed > u.n) options.decayed = u.n;
  made.run = [=](Tensors t, Stream& stream) {
    adamw({.master = t[0],
           .weight = copied ? t[5] : Tensor(),
           .m = t[3],
           .v = t[4],
           .gradient = t[1],
           .control = t[2],
           .beta1 = options.beta1,
           .beta2 = options.beta2,
           .eps = options.eps,
           .decay = options.decay,
           .decayed = options.decayed,
           .rounding = tensors_of_update(),
           .first = kFirst},
          stream);
  };
  made.reference = [=](Hosts t) {
    reference::adamw(t[0], copied ? &t[5] : nullptr, t[3], t[4], t[1], t[2], options);
    if (u.narrow_moments && u.finite != 0)
      for (const int moment : {3, 4}) allow_either_neighbour(t[moment]);
    if (u.master == DType::bf16 && u.finite != 0) allow_either_neighbour(t[0]);
  };
  return made;
}

KernelCase descent(DType gradient, const Update& u, bool with_momentum) {
  KernelCase made{
      .op = "sgd", .shape = update_label(gradient, u), .dtype = gradient, .operands = update_operands(gradient, u)};
  const bool copied = u.weight.has_value();
  if (with_momentum) made.operands.push_back({"momentum", {u.n}, u.moment(), Role::inout});
  if (copied) made.operands.push_back({"weight", {u.n}, *u.weight, Role::out});
  shift_starts(made, u);
  const int weight = with_momentum ? 4 : 3;
  made.shape += with_momentum ? "_momentum" : "";
  auto options = kOptions;
  options.decayed = u.n / 3;
  made.run = [=](Tensors t, Stream& stream) {
    sgd({.master = t[0],
         .weight = copied ? t[weight] : Tensor(),
         .momentum = with_momentum ? t[3] : Tensor(),
         .gradient = t[1],
         .control = t[2],
         .beta = options.beta1,
         .decay = options.decay,
         .decayed = options.decayed,
         .rounding = tensors_of_update(),
         .first = kFirst},
        stream);
  };
  made.reference = [=](Hosts t) {
    reference::sgd(t[0], copied ? &t[weight] : nullptr, with_momentum ? &t[3] : nullptr, t[1], t[2], options);
    if (u.narrow_moments && with_momentum && u.finite != 0) allow_either_neighbour(t[3]);
    if (u.master == DType::bf16 && u.finite != 0) allow_either_neighbour(t[0]);
  };
  return made;
}
}  // namespace

Cases optimizer_cases(DType dtype) {
  Cases cases;
  for (const std::int64_t n : {1, 255, 256, 257, 5000, 70001})
    for (const bool accumulate : {false, true}) cases.push_back(norm(dtype, n, accumulate));
  cases.push_back(norm(dtype, 9000, false, 6));
  if (dtype == DType::f64)
    for (const double clip : {0.0, 1.0, 100.0})
      for (const double square : {0.0, 2.0, 5000.0}) cases.push_back(control(clip, square));
  if (dtype == DType::f64)
    for (const std::int64_t growth : {0, 3, 9})
      for (const int exponent : {4, 20}) cases.push_back(control(0.01, 5000, exponent, growth));
  if (dtype == accumulator_of(dtype)) cases.push_back(scaled_loss(dtype));
  std::vector<Update> updates;
  for (const std::int64_t n : {1, 13, 257, 20011}) {
    updates.push_back({n, accumulator_of(dtype), {}});
    updates.push_back({n, accumulator_of(dtype), dtype});
    updates.push_back({n, accumulator_of(dtype), dtype == DType::f64 ? DType::f64 : DType::bf16, 0});
    if (dtype == DType::f64) continue;
    updates.push_back({.n = n, .master = DType::f32, .weight = dtype, .narrow_moments = true});
    updates.push_back({.n = n, .master = DType::f32, .weight = {}, .finite = 0, .narrow_moments = true});
    updates.push_back({.n = n, .master = DType::bf16, .weight = {}});
    updates.push_back({.n = n, .master = DType::bf16, .weight = {}, .narrow_moments = true});
    updates.push_back({.n = n, .master = DType::bf16, .weight = {}, .finite = 0, .narrow_moments = true});
  }
  updates.push_back({.n = 1000, .master = accumulator_of(dtype), .weight = dtype, .gap = 6});
  if (dtype == DType::bf16)
    for (const DType master : {DType::f32, DType::bf16})
      updates.push_back({.n = 1000,
                         .master = master,
                         .weight = master == dtype ? std::nullopt : std::optional(dtype),
                         .narrow_moments = true,
                         .gap = 2});
  if (dtype == DType::f32) updates.push_back({300, DType::f32, DType::f16});
  for (const Update& u : updates) {
    cases.push_back(adam(dtype, u));
    cases.push_back(descent(dtype, u, true));
    cases.push_back(descent(dtype, u, false));
  }
  return cases;
}

}  // namespace lockstep::tests
