#include "spec/run/compression_check.h"

#include <fmt/format.h>

namespace lockstep {

namespace {

constexpr std::int64_t kMostCompressing = 1024;  // ranks: as many codes as one kernel adds up

// Each tensor-parallel rank compresses its own part. What several of them have must be the same on all, and a key/value
// head in a part with other queries would not be.
template <class Refuse>
void check_heads(const RunSpec& spec, const Refuse& refuse) {
  if (spec.layout.tp > spec.model.kv_heads)
    refuse(fmt::format(
               "{} tensor-parallel ranks have the same key/value heads ({}) in parts that are not compressed alike",
               spec.layout.tp, spec.model.kv_heads),
           fmt::format("use layout.tp={}", spec.model.kv_heads));
}

void check_gradients(const RunSpec& spec, const CompressionFault& fail) {
  const LayoutSpec& layout = spec.layout;
  const auto refuse = [&](const std::string& problem, const std::string& remedy) {
    fail("sync", "compress", problem, remedy + ", or compress = \"none\"");
  };
  if (spec.sync.kind != SyncKind::full)
    refuse(fmt::format("gradients are compressed where all ranks sum them in every step, and kind is \"{}\"",
                       name_of(spec.sync.kind)),
           "use sync.kind=full");
  if (layout.dp_kind != DpKind::ddp)
    refuse(fmt::format("gradients are compressed where ranks sum them among themselves, and dp_kind is \"{}\"",
                       name_of(layout.dp_kind)),
           "use layout.dp_kind=ddp");
  if (layout.embedding_gradient != EmbeddingGradient::dense)
    refuse(fmt::format("a compressed gradient has no rows, and embedding_gradient is \"{}\"",
                       name_of(layout.embedding_gradient)),
           "use layout.embedding_gradient=dense");
  check_heads(spec, refuse);
  if (layout.tp > 1 && spec.sync.compress.kind == Compression::Kind::onebit)
    refuse("a sign for each element would give the padding of layers that are split a gradient",
           "use layout.tp=1, or compress = \"int8\"");
  if (layout.replicas() == 1)
    refuse("compress does nothing with dp = 1 and cp = 1: no gradients are sent", "use layout.dp=2 or more");
  if (layout.replicas() > kMostCompressing)
    refuse(fmt::format("gradients of {} ranks are more than are compressed", layout.replicas()),
           fmt::format("use layout.dp={} or fewer", kMostCompressing));
  if (layout.reduce != ReduceKind::canonical)
    refuse(fmt::format("reduce = \"{}\" does nothing: compressed sums have a way of their own", name_of(layout.reduce)),
           "use layout.reduce=canonical");
  if (layout.shards() > 1 && layout.shards() < layout.replicas())
    refuse(fmt::format("gradients that are sharded over {} of {} ranks are not compressed yet", layout.shards(),
                       layout.replicas()),
           "leave layout.shard out");
  if (spec.model.tied && layout.passes_on())
    refuse("a tied weight's gradients that are summed after every micro-batch are not compressed yet",
           "use layout.grad_sync=step");
  if (spec.memory.offload_gradients != Offload::none)
    refuse("gradients that are offloaded are not compressed", "use memory.offload_gradients=none");
  if (spec.precision.loss_scale.kind != LossScale::Kind::none)
    refuse("what a compressed gradient leaves out is added to the next one, which may have another loss scale",
           "use precision.compute=bf16");
}

void check_weights(const RunSpec& spec, const CompressionFault& fail) {
  const LayoutSpec& layout = spec.layout;
  const auto refuse = [&](const std::string& problem, const std::string& remedy) {
    fail("sync", "compress_weights", problem, remedy + ", or compress_weights = \"none\"");
  };
  if (spec.sync.compress_weights.kind != Compression::Kind::int8)
    refuse(fmt::format("weights are gathered in int8 blocks, and not in {}", spec.sync.compress_weights.text()),
           "use sync.compress_weights=int8");
  if (!layout.cuts_weights())
    refuse("compress_weights does nothing: no weights are gathered", "use layout.zero=3 and layout.dp=2 or more");
  if (spec.sync.kind != SyncKind::full)
    refuse(fmt::format("weights are compressed where all ranks agree on them in every step, and kind is \"{}\"",
                       name_of(spec.sync.kind)),
           "use sync.kind=full");
  check_heads(spec, refuse);
  if (spec.memory.offload_parameters != Offload::none)
    refuse("weights that are offloaded are not compressed", "use memory.offload_parameters=none");
}

// Of an element of what a run computes in.
std::int64_t activation_bytes(const PrecisionSpec& precision) {
  return precision.compute == Precision::fp64 ? 8 : precision.compute == Precision::fp32 ? 4 : 2;
}

void check_activations(const RunSpec& spec, const CompressionFault& fail) {
  const Compression& form = spec.sync.compress_activations;
  const std::int64_t bytes = activation_bytes(spec.precision);
  constexpr std::int64_t kPlaceBytes = 2, kMostPlaces = 65536;
  const auto refuse = [&](const std::string& problem, const std::string& remedy) {
    fail("sync", "compress_activations", problem, remedy + ", or compress_activations = \"none\"");
  };
  if (spec.layout.pp == 1)
    refuse("compress_activations does nothing with pp = 1: no activations are sent", "use layout.pp=2 or more");
  if (form.kind == Compression::Kind::bf16 && bytes == 2)
    refuse(fmt::format("activations of compute = \"{}\" have 16 bits already", name_of(spec.precision.compute)),
           "use sync.compress_activations=int8");
  if (form.kind == Compression::Kind::topk && spec.model.width > kMostPlaces)
    refuse(fmt::format("places in a row of width {} do not fit into 16 bits", spec.model.width),
           "use sync.compress_activations=int8");
  const double most = static_cast<double>(bytes) / static_cast<double>(bytes + kPlaceBytes);
  if (form.kind == Compression::Kind::topk && form.share >= most)
    refuse(fmt::format("{} sends {} bytes and a place of {} for each element that it keeps: no fewer than all have",
                       form.text(), bytes, kPlaceBytes),
           fmt::format("use a share below {:.2f}", most));
}

}  // namespace

void check_compression(const RunSpec& spec, const CompressionFault& fail) {
  if (spec.sync.compress) check_gradients(spec, fail);
  if (spec.sync.compress_weights) check_weights(spec, fail);
  if (spec.sync.compress_activations) check_activations(spec, fail);
}

}  // namespace lockstep
