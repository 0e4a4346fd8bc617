#include "spec/layout/layout_spec.h"

#include <fmt/format.h>

#include <numeric>

#include "spec/model/model_spec.h"
#include "spec/text/text_input.h"

namespace lockstep {

namespace {

std::string divisors_near(std::int64_t n, std::int64_t wanted) {
  std::int64_t below = 1, above = n;
  for (std::int64_t d = 1; d <= n; ++d) {
    if (n % d != 0) continue;
    if (d <= wanted) below = d;
    if (d >= wanted) {
      above = d;
      break;
    }
  }
  return below == above ? fmt::format("{}", below) : fmt::format("{} or {}", below, above);
}

std::string heads_text(std::int64_t heads, std::int64_t kv_heads) {
  return fmt::format("{} head{} with {} key/value head{}", heads, heads == 1 ? "" : "s", kv_heads,
                     kv_heads == 1 ? "" : "s");
}

std::string multiples_near(std::int64_t seq, std::int64_t unit) {
  const std::int64_t below = seq / unit * unit;
  return below == 0 ? fmt::format("seq = {}", unit) : fmt::format("seq = {} or {}", below, below + unit);
}

void check_servers(const LayoutSpec& layout, const LayoutFault& fail) {
  const std::int64_t line = layout.line(), below = layout.servers / line * line;
  if (layout.servers != below || below == 0)
    fail("servers",
         fmt::format("servers ({}) is not a multiple of pp ({}) times cp ({}) times tp ({})", layout.servers, layout.pp,
                     layout.cp, layout.tp),
         below == 0 ? fmt::format("use servers = {}", line)
                    : fmt::format("use servers = {} or {}", below, below + line));
  if (layout.reduce != ReduceKind::canonical)
    fail("reduce",
         fmt::format("servers sum gradients in the canonical order, not in that of reduce = \"{}\"",
                     name_of(layout.reduce)),
         "use reduce = \"canonical\", or dp_kind = \"ddp\"");
}

void check_embedding_gradient(const LayoutSpec& layout, const LayoutFault& fail) {
  const std::string text = fmt::format("embedding_gradient = \"{}\"", name_of(layout.embedding_gradient));
  if (layout.embedding_gradient == EmbeddingGradient::dense) return;
  const auto refuse = [&](const std::string& problem, const std::string& remedy) {
    fail("embedding_gradient", problem, remedy + ", or embedding_gradient = \"dense\"");
  };
  if (layout.embedding_gradient == EmbeddingGradient::rows && layout.replicas() == 1)
    refuse(text + " does nothing with dp = 1: no gradients are summed", "use dp = 2 or more");
  if (layout.reduce != ReduceKind::canonical)
    refuse(fmt::format("{} sums rows in the canonical order, and reduce is \"{}\"", text, name_of(layout.reduce)),
           "use reduce = \"canonical\"");
  if (layout.shards() > 1 && layout.shards() < layout.replicas())
    refuse(fmt::format("{} sums rows over all ranks at once, and state is sharded over {} of {}", text, layout.shards(),
                       layout.replicas()),
           "leave shard out");
}

}  // namespace

ContextSplit LayoutSpec::context_split(std::int64_t rank) const {
  const ContextFactors factors = cp_kind.factors(cp);
  return {.rank = cp_rank(rank), .ring = factors.ring, .heads = factors.heads, .zigzag = cp_order == CpOrder::zigzag};
}

void check_layout(std::int64_t batch, const LayoutSpec& layout, const LayoutFault& fail) {
  const std::int64_t micro = layout.micro, dp = layout.dp, replicas = layout.replicas();
  if (layout.dp_kind == DpKind::server) check_servers(layout, fail);
  check_embedding_gradient(layout, fail);
  if (layout.shard > replicas || (layout.shard > 0 && replicas % layout.shard != 0))
    fail("shard",
         layout.cp == 1
             ? fmt::format("dp ({}) is not a multiple of shard ({})", dp, layout.shard)
             : fmt::format("dp ({}) times cp ({}) is not a multiple of shard ({})", dp, layout.cp, layout.shard),
         fmt::format("use shard = {}, or 0 for all ranks", divisors_near(replicas, layout.shard)));
  if (batch % micro != 0) {
    const std::int64_t below = batch / micro * micro;
    fail("micro", fmt::format("global_batch ({}) is not a multiple of micro ({})", batch, micro),
         below == 0 ? fmt::format("use global_batch = {} or a smaller micro", below + micro)
                    : fmt::format("use global_batch = {} or {}, or another micro", below, below + micro));
  }
  if (batch / micro < dp) {
    fail("dp", fmt::format("dp ({}) times micro ({}) is more than global_batch ({})", dp, micro, batch),
         fmt::format("use global_batch = {}, or dp = {} or less", dp * micro, batch / micro));
  }
  if (batch % (dp * micro) != 0 && layout.uneven == Switch::off) {
    const std::int64_t below = batch / (dp * micro) * dp * micro;
    fail("dp", fmt::format("global_batch ({}) is not a multiple of dp ({}) times micro ({})", batch, dp, micro),
         fmt::format("use global_batch = {} or {}, other ranks, or uneven = \"on\"", below, below + dp * micro));
  }
}

void check_tensor_layout(const ModelSpec& model, const LayoutSpec& layout, const LayoutFault& fail) {
  const std::int64_t tp = layout.tp, H = model.heads, K = model.kv_heads;
  if (tp == 1) return;
  if (!heads_divide(H, K, tp)) {
    std::string fitting;
    for (std::int64_t n = 1; n <= H; ++n)
      if (heads_divide(H, K, n)) fitting += fmt::format("{}{}", fitting.empty() ? "" : ", ", n);
    fail("tp", fmt::format("{} cannot be shared out to tp ({}) ranks", heads_text(H, K), tp),
         fmt::format("use tp = {}", fitting));
  }
}

void check_context_layout(const ModelSpec& model, std::int64_t seq, const LayoutSpec& layout, const LayoutFault& fail) {
  if (layout.cp == 1) return;
  const ContextFactors factors = layout.cp_kind.factors(layout.cp);
  if (factors.ring * factors.heads != layout.cp)
    fail("cp_kind",
         fmt::format("cp_kind = \"{}\" is {} ranks, and cp is {}", layout.cp_kind.text(), factors.ring * factors.heads,
                     layout.cp),
         fmt::format("use cp = {}, or factors of {}", factors.ring * factors.heads, layout.cp));
  const HeadSplit here(model.heads, model.kv_heads, {.size = layout.tp});
  const std::int64_t H = here.queries.each, K = here.keys.each;
  if (!heads_divide(H, K, factors.heads)) {
    std::string fitting;
    for (std::int64_t n = 1; n <= layout.cp; ++n)
      if (layout.cp % n == 0 && heads_divide(H, K, n))
        fitting += fmt::format("{}\"{}x{}\"", fitting.empty() ? "" : ", ", layout.cp / n, n);
    fail("cp_kind",
         fmt::format("{}{} cannot be exchanged between {} ranks", heads_text(H, K), layout.tp > 1 ? " of a rank" : "",
                     factors.heads),
         fmt::format("use cp_kind = {}", fitting));
  }
  if (seq % layout.context_split(0).multiple() == 0) return;
  LayoutSpec plain = layout;
  plain.cp_order = CpOrder::plain;
  const bool plainly = seq % plain.context_split(0).multiple() == 0;
  fail("cp",
       fmt::format("seq ({}) is not a multiple of {}, which cp ({}) asks for", seq, layout.context_split(0).multiple(),
                   layout.cp),
       fmt::format("use {}{}, or another cp", multiples_near(seq, layout.context_split(0).multiple()),
                   plainly ? ", cp_order = \"plain\"" : ""));
}

void check_pipeline_layout(const ModelSpec& model, const LayoutSpec& layout, const LayoutFault& fail) {
  if (layout.schedule_file.empty())
    check_schedule(layout.schedule,
                   {static_cast<int>(layout.pp), static_cast<int>(layout.micro), static_cast<int>(layout.chunks)},
                   [&](const std::string& problem, const std::string& remedy) { fail("chunks", problem, remedy); });
  else
    schedule_of(layout);
  const std::int64_t chunks = layout.pp * layout.chunks, units = model.layers + 2;
  if (chunks > units) {
    const std::int64_t most = std::max<std::int64_t>(units / layout.chunks, 1);
    fail("pp",
         fmt::format("{} layers, the embedding and the head cannot be split into pp ({}) times chunks ({}) parts",
                     model.layers, layout.pp, layout.chunks),
         fmt::format("use pp = {} or less", most));
  }
  if (layout.stages.form != StageRule::Form::layers) return;
  const std::vector<std::int64_t>& layers = layout.stages.layers;
  const std::int64_t sum = std::accumulate(layers.begin(), layers.end(), std::int64_t{0});
  if (std::ssize(layers) != chunks || sum != model.layers)
    fail("stages",
         fmt::format("stages = \"{}\" has {} parts with {} layers, and there are pp ({}) times chunks ({}) "
                     "parts and {} layers",
                     layout.stages.text(), layers.size(), sum, layout.pp, layout.chunks, model.layers),
         fmt::format("name {} numbers that add up to {}", chunks, model.layers));
  for (std::size_t k = 1; k + 1 < layers.size(); ++k)
    if (layers[k] == 0)
      fail("stages", fmt::format("part {} of stages = \"{}\" is empty", k, layout.stages.text()),
           "give every part between the first and the last a layer");
}

void check_wrap(const ModelSpec& model, const LayoutSpec& layout, const LayoutFault& fail) {
  if (layout.wrap.form != WrapRule::Form::blocks) return;
  const std::vector<std::int64_t>& blocks = layout.wrap.blocks;
  const std::int64_t sum = std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0});
  if (sum != model.layers)
    fail("wrap",
         fmt::format("wrap = \"{}\" is of {} block{}, and the model has {}", layout.wrap.text(), sum,
                     sum == 1 ? "" : "s", model.layers),
         fmt::format("name numbers that add up to {}", model.layers));
}

bool spread_over(LayoutSpec& layout, std::int64_t ranks, std::string_view option, const LayoutFault& fail) {
  const std::int64_t line = layout.line(), servers = layout.servers, workers = ranks - servers;
  const auto counted = [](std::int64_t n) { return fmt::format("{} rank{}", n, n == 1 ? "" : "s"); };
  if (servers > 0 && workers < line) {
    fail("servers",
         fmt::format("servers ({}) leave{} {} of {} to compute", servers, servers == 1 ? "s" : "",
                     workers < 1 ? "none" : fmt::format("{}", workers), counted(ranks)),
         fmt::format("use {}{}, or fewer servers", option, servers + line));
    return false;
  }
  const std::int64_t below = workers / line * line;
  if (below == workers) {
    layout.dp = workers / line;
    return true;
  }
  std::string axes, key;
  for (const auto& [name, size] : {std::pair("pp", layout.pp), {"cp", layout.cp}, {"tp", layout.tp}})
    if (size > 1) axes += (axes.empty() ? "" : " times ") + std::string(key = name);
  fail(key,
       fmt::format("{} ({}) does not divide {}{}", axes, line, counted(workers),
                   servers > 0 ? fmt::format(" beside {} servers", servers) : ""),
       below == 0
           ? fmt::format("use {}{}, or a smaller {}", option, line, key)
           : fmt::format("use {0}{1} or {0}{2}, or another {3}", option, below + servers, below + line + servers, key));
  return false;
}

void check_model_layout(const ModelSpec& model, std::int64_t seq, const LayoutSpec& layout, const LayoutFault& fail) {
  check_tensor_layout(model, layout, fail);
  check_context_layout(model, seq, layout, fail);
  check_pipeline_layout(model, layout, fail);
  check_wrap(model, layout, fail);
  if (model.tied && layout.embedding_gradient == EmbeddingGradient::rows)
    fail("embedding_gradient", "all rows of a tied table have a gradient: the head's",
         "use embedding_gradient = \"dense\", or \"auto\", which sums them all");
}

PipelineSchedule schedule_of(const LayoutSpec& layout) {
  const PipelineShape shape{static_cast<int>(layout.pp), static_cast<int>(layout.micro),
                            static_cast<int>(layout.chunks)};
  if (layout.schedule_file.empty()) return make_schedule(layout.schedule, shape);
  constexpr std::size_t kMostText = 16 << 20;
  PipelineSchedule schedule =
      parse_schedule(read_text_file(layout.schedule_file, kMostText, ExitCode::usage), layout.schedule_file);
  if (schedule.shape != shape)
    throw UserError(
        ExitCode::usage,
        fmt::format("{}: it has {} stages, {} micro-batches and {} chunks per stage; the layout has {}, {} and {}",
                    layout.schedule_file, schedule.shape.stages, schedule.shape.micro, schedule.shape.chunks,
                    shape.stages, shape.micro, shape.chunks),
        fmt::format("use pp = {}, micro = {}, chunks = {}", schedule.shape.stages, schedule.shape.micro,
                    schedule.shape.chunks));
  return schedule;
}

std::string to_text(const LayoutSpec& layout) {
  const LayoutSpec usual;
  std::string text;
  const auto say = [&](std::string_view key, const auto& value) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", key, value);
  };
  if (layout.dp != usual.dp || layout == usual) say("dp", layout.dp);
  if (layout.pp != usual.pp) say("pp", layout.pp);
  if (layout.cp != usual.cp) say("cp", layout.cp);
  if (layout.cp > 1 && layout.cp_kind != usual.cp_kind) say("cp_kind", layout.cp_kind.text());
  if (layout.cp > 1 && layout.cp_order != usual.cp_order) say("cp_order", name_of(layout.cp_order));
  if (layout.tp != usual.tp) say("tp", layout.tp);
  if (layout.sp != LayoutSpec::usual_sp(layout.tp)) say("sp", name_of(layout.sp));
  if (layout.tp > 1 && layout.tp_chunks != usual.tp_chunks) say("tp_chunks", layout.tp_chunks);
  if (layout.micro != usual.micro) say("micro", layout.micro);
  if (!layout.schedule_file.empty()) say("schedule_file", layout.schedule_file);
  if (layout.schedule != usual.schedule) say("schedule", name_of(layout.schedule));
  if (layout.chunks != usual_chunks(layout.schedule)) say("chunks", layout.chunks);
  if (layout.stages != usual.stages) say("stages", layout.stages.text());
  if (layout.dp_kind != usual.dp_kind) say("dp_kind", name_of(layout.dp_kind));
  if (layout.servers != usual.servers) say("servers", layout.servers);
  if (layout.zero != usual.zero) say("zero", layout.zero);
  if (layout.grad_sync != LayoutSpec::usual_sync(layout.zero)) say("grad_sync", name_of(layout.grad_sync));
  if (layout.reshard != usual.reshard) say("reshard", name_of(layout.reshard));
  if (layout.prefetch != usual.prefetch) say("prefetch", layout.prefetch);
  if (layout.wrap != usual.wrap) say("wrap", layout.wrap.text());
  if (layout.shard != usual.shard) say("shard", layout.shard);
  if (layout.overlap != usual.overlap) say("overlap", name_of(layout.overlap));
  if (layout.embedding_gradient != usual.embedding_gradient)
    say("embedding_gradient", name_of(layout.embedding_gradient));
  if (layout.bucket != usual.bucket) say("bucket", layout.bucket);
  if (layout.uneven != usual.uneven) say("uneven", name_of(layout.uneven));
  if (layout.reduce != usual.reduce) say("reduce", name_of(layout.reduce));
  return text;
}

}  // namespace lockstep
