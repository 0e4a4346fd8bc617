#include "train/generator.h"

#include <algorithm>
#include <numeric>

#include "checkpoint/state_runs.h"
#include "kernels/rope.h"
#include "tensor/transfer.h"

namespace lockstep {

namespace {

std::vector<Action> forward_actions(const Model& model, bool with_head) {
  std::vector<Action> actions = forward_pass(model.step_shape(1));
  if (!with_head) std::erase_if(actions, [&](const Action& a) { return a.unit == model.units() - 1; });
  return actions;
}

TensorSplit split_of(const Communicator* ranks) {
  if (!ranks) return {};
  return {.rank = ranks->rank(), .size = ranks->size()};
}

}  // namespace

Generator::Pass::Pass(const Options& options, const TensorSplit& split, std::int64_t T, bool with_head, Memory& memory)
    : model(options.spec, 1, T, storage_types(options.precision).compute, {.runs_on = memory.device(), .split = split}),
      activations(model.slots(), forward_actions(model, with_head), model.step_shape(1), memory),
      tokens(memory.allocate(T * 4, Tag::data)) {}

Generator::Generator(const Options& options, Memory& memory, Stream& stream)
    : options_(options),
      memory_(memory),
      stream_(stream),
      dtype_(storage_types(options.precision).compute),
      sums_(accumulator_of(dtype_)),
      alone_(memory.device()),
      tensor_(options.ranks ? *options.ranks : alone_, {.split = split_of(options.ranks)}),
      one_(options, tensor_.split(), 1, true, memory) {
  const ModelSpec& s = options.spec;
  LOCKSTEP_CHECK(options.positions >= 1 && options.positions <= s.max_positions && options.chunk >= 1,
                 "{} positions of {}, {} at a time", options.positions, s.max_positions, options.chunk);
  if (options.chunk > 1 && options.chunk < options.positions)
    many_.emplace(options, tensor_.split(), options.chunk, false, memory);
  take_weights();
  take_caches();
  take_positions();
  scores_ =
      memory.allocate(one_.model.head().vocabulary().each * tensor_.split().size * size_of(sums_), Tag::activation);
  logits_.resize(s.vocabulary);
  narrow_logits_.resize(sums_ == DType::f64 ? 0 : s.vocabulary);
}

// Of weights that nobody updates; zero where they are padding.
void Generator::take_weights() {
  const Model& model = one_.model;
  for (int u = 0; u < model.units(); ++u)
    weights_.emplace_back(
        model.unit(u).layout(),
        UnitStorage::Options{.types = storage_types(options_.precision), .optimizer = {}, .updates = false}, memory_,
        stream_);
  for (int u = 0; u < model.units(); ++u) {
    const std::vector<StoredParameter>& parameters = model.unit(u).layout().parameters();
    UnitTensors tensors;
    for (int p = 0; p < std::ssize(parameters); ++p)
      tensors.weights.push_back(parameters[p].tied
                                    ? weights_[model.tie()->owner_unit].weight(model.tie()->owner_parameter)
                                    : weights_[u].weight(p));
    units_.push_back(std::move(tensors));
  }
}

void Generator::take_caches() {
  const ModelSpec& s = options_.spec;
  const Shape shape{1, options_.positions, HeadSplit(s.heads, s.kv_heads, tensor_.split()).keys.each, s.head_width};
  for (std::int64_t layer = 0; layer < s.layers; ++layer) {
    const std::string& unit = one_.model.unit(static_cast<int>(layer) + 1).layout().name();
    cached_.push_back(memory_.allocate(2 * shape.elements() * size_of(dtype_), Tag::activation, unit));
    caches_.push_back({view(cached_.back(), dtype_, shape), view(cached_.back(), dtype_, shape, shape.elements())});
  }
}

// The tables of every position there is room for; a call gets its rows of them.
void Generator::take_positions() {
  const ModelSpec& s = options_.spec;
  const std::int64_t S = options_.positions;
  positions_ = memory_.allocate(S * 4, Tag::data);
  std::vector<std::int32_t> positions(S);
  std::iota(positions.begin(), positions.end(), 0);
  upload(view(positions_, DType::i32, {S}), positions.data(), stream_);
  if (s.positions != PositionKind::rope) return;
  const Shape shape{S, s.head_width / 2};
  cos_ = memory_.allocate(shape.elements() * size_of(sums_), Tag::data);
  sin_ = memory_.allocate(shape.elements() * size_of(sums_), Tag::data);
  RopeTableArgs args{.cos = view(cos_, sums_, shape),
                     .sin = view(sin_, sums_, shape),
                     .positions = view(positions_, DType::i32, {S}),
                     .theta = s.rope_theta};
  if (const auto& r = s.rope_scaling)
    args.slowing =
        RopeSlowing{r->factor, r->low_freq_factor, r->high_freq_factor, static_cast<double>(r->original_positions)};
  rope_table(args, stream_);
}

std::vector<StateTensor> Generator::weights() const {
  std::vector<StateTensor> all;
  for (const UnitStorage& unit : weights_)
    unit.each_piece([&](const UnitStorage::Piece& piece) {
      for (const Run& run : piece.runs)
        all.push_back(state_of(kWeightPart, piece.tensor, run, piece.of(unit.flat_weight())));
    });
  return all;
}

void Generator::load(const Checkpoint& checkpoint) { checkpoint.load(weights(), stream_); }

void Generator::load(const HfFolder& folder) {
  std::vector<LogicalTensor> names;
  for (const UnitStorage& unit : weights_)
    unit.each_piece([&](const UnitStorage::Piece& piece) { names.push_back(piece.tensor); });
  const std::vector<ConstTensor> values = folder.find(names);
  auto next = values.begin();
  for (const UnitStorage& unit : weights_)
    unit.each_piece([&](const UnitStorage::Piece& piece) {
      upload_runs(piece.of(unit.flat_weight()), piece.runs, *next++, stream_);
    });
}

void Generator::run(const Pass& pass, std::span<const std::int32_t> tokens, bool wants_logits) {
  const std::int64_t T = pass.model.T();
  upload(view(pass.tokens, DType::i32, {T}), tokens.data(), stream_);
  Batch batch{.tokens = view(pass.tokens, DType::i32, {1, T}),
              .targets = {},
              .positions = view(positions_, DType::i32, {T}, length_),
              .loss_scale = {},
              .losses = {},
              .training = false};
  if (cos_.memory()) {
    const std::int64_t half = options_.spec.head_width / 2;
    batch.rope_cos = view(cos_, sums_, {T, half}, length_ * half);
    batch.rope_sin = view(sin_, sums_, {T, half}, length_ * half);
  }
  const int head = pass.model.units() - 1;
  const auto call = [&](int u, const KeyValueCache* cache) {
    return Call{units_[u], pass.activations.of(0), batch, stream_, false, cache, &tensor_};
  };
  pass.model.unit(0).forward(call(0, nullptr));
  for (int u = 1; u < head; ++u) {
    caches_[u - 1].length = length_;
    pass.model.unit(u).forward(call(u, &caches_[u - 1]));
  }
  if (wants_logits) {
    const std::int64_t each = pass.model.head().vocabulary().each, rank = tensor_.split().rank;
    const Tensor own = view(scores_, sums_, {1, each}, rank * each);
    pass.model.head().last_logits(own, call(head, nullptr));
    tensor_.ranks().all_gather(view(scores_, sums_, {tensor_.split().size * each}), own)->wait();
  }
  length_ += T;
}

std::span<const double> Generator::feed(std::span<const std::int32_t> tokens) {
  LOCKSTEP_CHECK(!tokens.empty() && length_ + std::ssize(tokens) <= options_.positions,
                 "{} tokens behind {}, with room for {}", tokens.size(), length_, options_.positions);
  require_in_vocabulary(tokens, options_.spec);
  while (many_ && std::ssize(tokens) > options_.chunk) {
    run(*many_, tokens.first(options_.chunk), false);
    tokens = tokens.subspan(options_.chunk);
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) run(one_, tokens.subspan(i, 1), i + 1 == tokens.size());
  const Tensor scores = view(scores_, sums_, {options_.spec.vocabulary});
  if (sums_ == DType::f64) {
    download(logits_.data(), scores, stream_);
  } else {
    download(narrow_logits_.data(), scores, stream_);
    std::ranges::copy(narrow_logits_, logits_.begin());
  }
  tensor_.ranks().check();
  return logits_;
}

void require_in_vocabulary(std::span<const std::int32_t> tokens, const ModelSpec& spec) {
  for (const std::int32_t token : tokens)
    if (token < 0 || token >= spec.vocabulary)
      throw UserError(ExitCode::usage, fmt::format("there is no token id {}", token),
                      fmt::format("the model's vocabulary has ids 0 to {}", spec.vocabulary - 1));
}

Finish go_on(Generator& generator, std::span<const std::int32_t> prompt, const Continuation& how,
             const std::function<bool(std::int32_t)>& give) {
  std::vector<Candidate> room;
  std::span<const double> logits = generator.feed(prompt);
  for (std::int64_t given = 1;; ++given) {
    const std::int32_t token = pick(logits, how.sampling, generator.length(), room);
    if (token == how.end) return Finish::end_of_text;
    if (!give(token)) return Finish::stopped;
    if (given >= how.max_tokens) return Finish::enough;
    if (generator.length() == generator.positions()) return Finish::no_positions;
    logits = generator.feed({&token, 1});
  }
}

}  // namespace lockstep
