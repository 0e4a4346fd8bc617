#include "train/generator.h"

#include <algorithm>
#include <numeric>

#include "checkpoint/checkpoint_model.h"
#include "checkpoint/state_runs.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/rope.h"
#include "spec/layout/stage_cut.h"
#include "spec/pipeline/stage_step.h"
#include "tensor/cpu/stream.h"
#include "tensor/transfer.h"
#include "train/merged_lora.h"

namespace lockstep {

namespace {

// Every layer is split over the ranks of a stage, but not what is between products: a single token cannot be split.
LayoutSpec layout_of(const Generator::Options& o) {
  const std::int64_t size = o.ranks ? o.ranks->size() : 1;
  LOCKSTEP_CHECK(o.pp >= 1 && o.pp <= o.spec.layers + 2 && o.cp >= 1 && size % (o.pp * o.cp) == 0,
                 "{} ranks as {} stages of {} layers, with {} parts of the cache", size, o.pp, o.spec.layers, o.cp);
  return {.pp = o.pp, .cp = o.cp, .tp = size / (o.pp * o.cp), .sp = Switch::off, .tp_chunks = 1};
}

constexpr std::int64_t kShortRun = 8;  // tokens that cost little more than one (kernels/cpu/few_rows.h)

// A prefill of all there is room for would never be read: the last token is always read by itself.
bool prefills(const Generator::Options& o) { return o.prefill > 1 && o.prefill < o.positions; }

std::int64_t rows_of_cache(const Generator::Options& o) {
  return CacheSplit::room(o.positions, prefills(o) ? o.prefill : 1, o.cp);
}

// The weight that another unit computes with too, by itself.
UnitLayout tied_weight(const Model& model) {
  const UnitLayout& owner = model.unit(model.tie()->owner_unit).layout();
  UnitLayout layout(owner.name());
  layout.add(owner.parameters()[model.tie()->owner_parameter]);
  return layout;
}

// A token goes through one stage after the other, so no split makes it faster: what counts is that the fullest stage
// has as few bytes of weights and caches as possible.
std::vector<int> cut_by_bytes(const Generator::Options& o, const Model& whole) {
  const ModelSpec& s = o.spec;
  const std::int64_t cached = 2 * o.texts * rows_of_cache(o) * s.kv_heads * s.head_width;
  std::vector<double> elements;
  for (int u = 0; u < whole.units(); ++u)
    elements.push_back(
        static_cast<double>(whole.unit(u).layout().owned() + (u > 0 && u + 1 < whole.units() ? cached : 0)));
  // The first unit and the last are not on one stage if there are several.
  if (whole.tie()) elements[whole.tie()->borrower_unit] += static_cast<double>(tied_weight(whole).owned());
  return cut_by_cost(elements, static_cast<int>(o.pp));
}

StepShape shape_of(const Generator::Options& o, int stage) {
  const Model whole(o.spec, 1, 1, storage_types(o.precision).compute);
  StepShape shape = whole.step_shape(1);
  shape.stage = stage;
  if (o.pp == 1) return shape;
  shape.stages.begins = cut_by_bytes(o, whole);
  shape.stages.stage_of.resize(static_cast<std::size_t>(o.pp));
  std::iota(shape.stages.stage_of.begin(), shape.stages.stage_of.end(), 0);
  return shape;
}

// The head's own, and what hands it its input.
bool is_for_head(const Action& a, const StepShape& shape) {
  return a.unit == shape.last() || (a.kind == ActionKind::send_output && a.unit + 1 == shape.last());
}

std::vector<Action> forward_actions(const StepShape& shape, bool with_head) {
  const PipelineSchedule schedule = make_schedule(ScheduleKind::afab, {.stages = shape.stages.count()});
  std::vector<Action> actions = pipeline_forward(schedule, shape, false);
  if (!with_head) std::erase_if(actions, [&](const Action& a) { return is_for_head(a, shape); });
  return actions;
}

}  // namespace

Generator::Pass::Pass(const Generator& of, std::int64_t B, std::int64_t T, bool with_head)
    : model(of.options_.spec, B, T, of.dtype_,
            {.runs_on = of.memory_.device(), .split = of.tensor_.split(), .cache_ranks = of.layout_.cp}),
      actions(forward_actions(of.shape_, with_head)),
      activations(model.slots(), actions, of.shape_, of.memory_),
      tokens(of.memory_.allocate(B * T * 4, Tag::data)) {
  if (B > 1) positions = of.memory_.allocate(B * 4, Tag::data);
}

Generator::Generator(const Options& options, Memory& memory, Stream& stream)
    : options_(options),
      memory_(memory),
      stream_(stream),
      dtype_(storage_types(options.precision).compute),
      sums_(accumulator_of(dtype_)),
      alone_(memory.device()),
      layout_(layout_of(options)),
      mesh_(options.ranks ? *options.ranks : alone_, layout_),
      tensor_(mesh_.tensor(), {.split = layout_.tensor_split(mesh_.world().rank())}),
      links_(mesh_.pipeline()),
      shape_(shape_of(options, mesh_.pipeline().rank())),
      one_(*this, 1, 1, true),
      borrowed_("") {
  const ModelSpec& s = options.spec;
  LOCKSTEP_CHECK(options.positions >= 1 && options.positions <= s.max_positions && options.prefill >= 1,
                 "{} positions of {}, {} at a time", options.positions, s.max_positions, options.prefill);
  LOCKSTEP_CHECK(options.texts >= 1, "{} texts", options.texts);
  take_passes();
  if (options.score_tokens > 0) {
    LOCKSTEP_CHECK(mesh_.world().size() == 1 && options.score_tokens <= options.positions,
                   "{} tokens are scored by {} ranks", options.score_tokens, mesh_.world().size());
    scored_.emplace(*this, 1, options.score_tokens, true);
    targets_ = memory.allocate(options.score_tokens * 4, Tag::data);
    losses_ = memory.allocate(options.score_tokens * size_of(sums_), Tag::data);
    scale_ = memory.allocate(size_of(sums_), Tag::data);
    fill({.y = view(scale_, sums_, {1}), .value = 1}, stream);
  }
  take_weights();
  take_caches();
  take_positions();
  const std::int64_t most = options.texts * one_.model.head().vocabulary().each * tensor_.split().size;
  scores_ = memory.allocate(most * size_of(sums_), Tag::activation);
  logits_.resize(static_cast<std::size_t>(options.texts * s.vocabulary));
  wide_scores_.resize(static_cast<std::size_t>(most));
  narrow_scores_.resize(sums_ == DType::f64 ? 0 : static_cast<std::size_t>(most));
  texts_.assign(static_cast<std::size_t>(options.texts),
                {CacheSplit(layout_.cp_rank(mesh_.world().rank()), layout_.cp), {}});
  for (Text& text : texts_) text.read.reserve(static_cast<std::size_t>(options.positions));
  used_caches_.reserve(texts_.size());
}

// What is left of a prompt after runs of `prefill` tokens is read in shorter ones. Texts are continued in passes for
// the next power of two.
void Generator::take_passes() {
  if (prefills(options_)) {
    reading_.emplace_back(*this, 1, options_.prefill, false);
    if (options_.prefill > kShortRun) reading_.emplace_back(*this, 1, kShortRun, false);
  }
  for (int size = 1; size < options_.texts;) {
    size = std::min(2 * size, options_.texts);
    together_.emplace_back(*this, size, 1, true);
  }
}

// Of weights that nobody updates; zero where they are padding.
void Generator::take_weights() {
  const Model& model = one_.model;
  const auto take = [&](int u, const UnitLayout& layout) {
    weights_.try_emplace(
        u, layout, ZeroShard::Options{.types = storage_types(options_.precision), .optimizer = {}, .updates = false},
        memory_, stream_);
  };
  for (int u = 0; u < model.units(); ++u) {
    const UnitLayout& layout = model.unit(u).layout();
    if (shape_.has(u)) take(u, layout);
    if (!shape_.has_copy(u)) continue;
    borrowed_ = tied_weight(model);
    take(u, borrowed_);
  }
  const auto tied = [&] {
    const Model::Tie& tie = *model.tie();
    return weights_.at(tie.owner_unit).weight(shape_.tie_is_sent() ? 0 : tie.owner_parameter);
  };
  for (int u = 0; u < model.units(); ++u) {
    if (!shape_.has(u)) continue;
    const std::vector<StoredParameter>& parameters = model.unit(u).layout().parameters();
    for (int p = 0; p < std::ssize(parameters); ++p)
      units_[u].weights.push_back(parameters[p].tied ? tied() : weights_.at(u).weight(p));
  }
}

void Generator::take_caches() {
  const ModelSpec& s = options_.spec;
  const Shape shape{1, rows_of_cache(options_), HeadSplit(s.heads, s.kv_heads, tensor_.split()).keys.each,
                    s.head_width};
  const std::int64_t each = shape.elements();
  for (int u = 1; u < shape_.last(); ++u) {
    if (!shape_.has(u)) continue;
    const Buffer& buffer = cached_.emplace_back(memory_.allocate(options_.texts * 2 * each * size_of(dtype_),
                                                                 Tag::activation, one_.model.unit(u).layout().name()));
    for (int text = 0; text < options_.texts; ++text)
      caches_[u].push_back({.k = view(buffer, dtype_, shape, 2 * text * each),
                            .v = view(buffer, dtype_, shape, (2 * text + 1) * each),
                            .ranks = layout_.cp > 1 ? &mesh_.context() : nullptr});
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
  for (const auto& [u, unit] : weights_)
    unit.each_piece([&, &unit = unit](const ZeroShard::Piece& piece) {
      for (const Run& run : piece.runs)
        all.push_back(state_of(kWeightPart, piece.tensor, run, piece.of(unit.flat_weight())));
    });
  return all;
}

void Generator::load(const Checkpoint& checkpoint) {
  const bool adapters = std::ranges::any_of(checkpoint.manifest().tensors,
                                            [](const ManifestTensor& t) { return t.name.starts_with(kAdapterPrefix); });
  if (!adapters) return checkpoint.load(weights(), stream_);
  Ledger ledger;
  const std::unique_ptr<Memory> memory = make_memory(Device::cpu, ledger);
  cpu::Stream host(*memory, 1);
  load(MergedLora(checkpoint, run_of(checkpoint), host));
}

void Generator::load(const MergedLora& merged) {
  Ledger ledger;
  const std::unique_ptr<Memory> memory = make_memory(Device::cpu, ledger);
  for (const auto& [u, unit] : weights_)
    unit.each_piece([&, &unit = unit](const ZeroShard::Piece& piece) {
      if (piece.runs.empty()) return;
      Buffer room;
      const ConstTensor values = merged.values(piece.tensor, *memory, room);
      upload_runs(piece.of(unit.flat_weight()), piece.runs, values, stream_);
    });
}

// A folder with a tensor that no stage wants is another model's, so all are looked up; this rank's alone are read.
void Generator::load(const HfFolder& folder) {
  const std::vector<LogicalTensor> names = logical_tensors(one_.model);
  const std::vector<ConstTensor> values = folder.find(names);
  std::map<std::string_view, ConstTensor> by_name;
  for (std::size_t i = 0; i < names.size(); ++i) by_name[names[i].name] = values[i];
  for (const auto& [u, unit] : weights_)
    unit.each_piece([&, &unit = unit](const ZeroShard::Piece& piece) {
      upload_runs(piece.of(unit.flat_weight()), piece.runs, by_name.at(piece.tensor.name), stream_);
    });
}

Batch Generator::batch_of(const Pass& pass, std::span<const int> texts) const {
  const std::int64_t B = pass.model.B(), T = pass.model.T(), half = options_.spec.head_width / 2;
  Batch batch{.tokens = view(pass.tokens, DType::i32, {B, T}),
              .targets = {},
              .positions = {},
              .loss_scale = {},
              .losses = {},
              .training = false};
  std::int64_t first = 0, rows = options_.positions;
  if (B == 1) {  // one text's rows of the tables
    first = length(texts[0]);
    rows = T;
    batch.positions = view(positions_, DType::i32, {T}, first);
  } else {
    batch.in_document = view(pass.positions, DType::i32, {B, T});
  }
  if (cos_.memory()) {
    batch.rope_cos = view(cos_, sums_, {rows, half}, first * half);
    batch.rope_sin = view(sin_, sums_, {rows, half}, first * half);
  }
  return batch;
}

void Generator::run(const Pass& pass, std::span<const std::int32_t> tokens, std::span<const int> texts,
                    bool wants_logits) {
  const std::int64_t B = pass.model.B(), T = pass.model.T();
  links_.settle();  // what was sent of the tokens before may be where these are written
  if (B == 1) {
    upload(view(pass.tokens, DType::i32, {T}), tokens.data(), stream_);
  } else {
    std::vector<std::int32_t> ids(tokens.begin(), tokens.end()), positions;
    for (const int text : texts) positions.push_back(static_cast<std::int32_t>(length(text)));
    ids.resize(static_cast<std::size_t>(B), ids.back());
    positions.resize(static_cast<std::size_t>(B), positions.back());
    upload(view(pass.tokens, DType::i32, {B}), ids.data(), stream_);
    upload(view(pass.positions, DType::i32, {B}), positions.data(), stream_);
  }
  const Batch batch = batch_of(pass, texts);
  for (const Action& action : pass.actions)
    if (wants_logits || !is_for_head(action, shape_)) run(action, pass, batch, texts);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    Text& text = texts_[texts[i]];
    text.rows.add(T);
    const auto own = tokens.subspan(i * T, T);
    text.read.insert(text.read.end(), own.begin(), own.end());
  }
}

void Generator::run(const Action& action, const Pass& pass, const Batch& batch, std::span<const int> texts) {
  const Activations& at = pass.activations.of(0);
  const Between& between = pass.model.between(action.unit);
  if (action.kind == ActionKind::receive_input) return links_.receive(action, at[between.x], other_end(action, shape_));
  if (action.kind == ActionKind::send_output) return links_.send(at[between.y], other_end(action, shape_));

  links_.ready({ActionKind::receive_input, action.unit, action.micro});
  Call call{.unit = units_.at(action.unit), .at = at, .batch = batch, .stream = stream_, .tensor = &tensor_};
  if (const auto caches = caches_.find(action.unit); caches != caches_.end()) {
    used_caches_.clear();
    for (std::int64_t row = 0; row < pass.model.B(); ++row) {
      const int text = texts[std::min<std::size_t>(row, texts.size() - 1)];
      KeyValueCache& cache = used_caches_.emplace_back(caches->second[text]);
      cache.length = texts_[text].rows.rows();
      cache.keeps = texts_[text].rows.keeps();
    }
    call.caches = used_caches_.data();
  }
  if (action.unit != shape_.last()) return pass.model.unit(action.unit).forward(call);
  const Tensor all = scores_of(pass);
  const Tensor own = all.slice(0, tensor_.split().rank, 1).reshape({all.dim(1), all.dim(2)});
  pass.model.head().last_logits(own, call);
  tensor_.ranks().all_gather(all, own)->wait();
}

Tensor Generator::scores_of(const Pass& pass) const {
  return view(scores_, sums_, {tensor_.split().size, pass.model.B(), pass.model.head().vocabulary().each});
}

// Of a pass that has run on all stages: its first rows.
std::span<const double> Generator::logits_of(const Pass& pass, std::int64_t rows) {
  const Tensor scores = scores_of(pass);
  mesh_.pipeline().broadcast(scores, static_cast<int>(options_.pp) - 1)->wait();
  if (sums_ == DType::f64) {
    download(wide_scores_.data(), scores, stream_);
  } else {
    download(narrow_scores_.data(), scores, stream_);
    std::copy_n(narrow_scores_.begin(), scores.elements(), wide_scores_.begin());
  }
  const std::int64_t V = options_.spec.vocabulary, each = scores.dim(2);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t v = 0; v < V; v += each)
      std::copy_n(wide_scores_.begin() + (v / each * scores.dim(1) + i) * each, std::min(each, V - v),
                  logits_.begin() + i * V + v);
  mesh_.check();
  return std::span(logits_).first(static_cast<std::size_t>(rows * V));
}

std::span<const double> Generator::feed(std::span<const std::int32_t> tokens, int text) {
  LOCKSTEP_CHECK(!tokens.empty() && length(text) + std::ssize(tokens) <= options_.positions,
                 "{} tokens after {}, with room for {}", tokens.size(), length(text), options_.positions);
  tokens = tokens.subspan(read_runs(tokens, text));
  for (; tokens.size() > 1; tokens = tokens.subspan(1)) run(one_, tokens.first(1), {&text, 1}, false);
  run(one_, tokens, {&text, 1}, true);
  return logits_of(one_, 1);
}

std::size_t Generator::read_runs(std::span<const std::int32_t> prompt, int text) {
  require_in_vocabulary(prompt, options_.spec);
  std::size_t read = 0;
  for (const Pass& pass : reading_)
    for (const auto T = static_cast<std::size_t>(pass.model.T()); prompt.size() - read > T; read += T)
      run(pass, prompt.subspan(read, T), {&text, 1}, false);
  return read;
}

std::span<const double> Generator::feed_each(std::span<const NextToken> next) {
  LOCKSTEP_CHECK(!next.empty() && std::ssize(next) <= options_.texts, "a token of each of {} texts, with room for {}",
                 next.size(), options_.texts);
  if (next.size() == 1) return feed({&next[0].token, 1}, next[0].text);
  std::vector<int> texts;
  std::vector<std::int32_t> tokens;
  for (const auto& [text, token] : next) {
    LOCKSTEP_CHECK(length(text) < options_.positions && std::ranges::find(texts, text) == texts.end(),
                   "text {} of {} tokens, with room for {}, or twice", text, length(text), options_.positions);
    texts.push_back(text);
    tokens.push_back(token);
  }
  require_in_vocabulary(tokens, options_.spec);
  const Pass& pass = *std::ranges::find_if(together_, [&](const Pass& p) { return p.model.B() >= std::ssize(texts); });
  run(pass, tokens, texts, true);
  return logits_of(pass, std::ssize(texts));
}

std::vector<double> Generator::score(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets) {
  const std::int64_t T = options_.score_tokens, count = std::ssize(tokens);
  LOCKSTEP_CHECK(scored_ && count >= 1 && count <= T && targets.size() == tokens.size(), "{} tokens to score, of {}",
                 count, T);
  require_in_vocabulary(tokens, options_.spec);
  // The rest of the room is after all that counts, so it changes nothing.
  std::vector<std::int32_t> padded(static_cast<std::size_t>(T), 0), wanted(padded.size(), kIgnoredTarget);
  std::ranges::copy(tokens, padded.begin());
  std::ranges::copy(targets, wanted.begin());
  upload(view(scored_->tokens, DType::i32, {T}), padded.data(), stream_);
  upload(view(targets_, DType::i32, {T}), wanted.data(), stream_);
  const std::int64_t half = options_.spec.head_width / 2;
  Batch batch{.tokens = view(scored_->tokens, DType::i32, {1, T}),
              .targets = view(targets_, DType::i32, {T}),
              .positions = view(positions_, DType::i32, {T}),
              .loss_scale = view(scale_, sums_, {1}),
              .losses = view(losses_, sums_, {T}),
              .training = false};
  if (cos_.memory()) {
    batch.rope_cos = view(cos_, sums_, {T, half});
    batch.rope_sin = view(sin_, sums_, {T, half});
  }
  for (const Action& action : scored_->actions) {
    const Call call{.unit = units_.at(action.unit),
                    .at = scored_->activations.of(0),
                    .batch = batch,
                    .stream = stream_,
                    .tensor = &tensor_};
    scored_->model.unit(action.unit).forward(call);
  }
  std::vector<double> losses(static_cast<std::size_t>(T));
  if (sums_ == DType::f64) {
    download(losses.data(), view(losses_, sums_, {T}), stream_);
  } else {
    std::vector<float> narrow(losses.size());
    download(narrow.data(), view(losses_, sums_, {T}), stream_);
    std::ranges::copy(narrow, losses.begin());
  }
  losses.resize(static_cast<std::size_t>(count));
  return losses;
}

void Generator::clear(int text) {
  texts_[text].rows.clear();
  texts_[text].read.clear();
}

void require_in_vocabulary(std::span<const std::int32_t> tokens, const ModelSpec& spec) {
  for (const std::int32_t token : tokens)
    if (token < 0 || token >= spec.vocabulary)
      throw UserError(ExitCode::usage, fmt::format("there is no token id {}", token),
                      fmt::format("use ids from 0 to {}", spec.vocabulary - 1));
}

}  // namespace lockstep
