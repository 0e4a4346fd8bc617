#include "spec/run/lora_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "spec/model/projections.h"
#include "spec/text/text_input.h"

namespace lockstep {

namespace {

void check_targets(const RunSpec& spec, const LoraFault& fail) {
  const LoraSpec& lora = spec.lora;
  const std::vector<Projection> all = projections_of(spec.model);
  std::string names;
  for (const Projection& p : all) names += (names.empty() ? "" : ", ") + p.name.substr(p.name.find('.') + 1);
  if (lora.targets.empty())
    fail("lora", "targets", "there are no targets, so nothing would be trained", "use \"all\", or some of " + names);
  for (auto target = lora.targets.begin(); target != lora.targets.end(); ++target) {
    if (std::find(lora.targets.begin(), target, *target) != target)
      fail("lora", "targets", fmt::format("{} is there twice", quote_text(*target)), "name it once");
    const LoraSpec alone{.rank = lora.rank, .targets = {*target}};
    if (std::ranges::none_of(all, [&](const Projection& p) { return alone.adapts(p.name); }))
      fail("lora", "targets", fmt::format("the blocks of this model have no projection {}", quote_text(*target)),
           "use \"all\", or some of " + names);
  }
  for (const Projection& p : all)
    if (lora.adapts(p.name) && lora.rank >= std::min(p.in, p.out))
      fail("lora", "rank",
           fmt::format("adapters of rank {} are no smaller than {}, which is {} by {}", lora.rank, p.name, p.out, p.in),
           fmt::format("use lora.rank={} or less", std::min(p.in, p.out) - 1));
}

}  // namespace

void check_lora(const RunSpec& spec, const LoraFault& fail) {
  if (!spec.lora) return;
  check_targets(spec, fail);
  const auto refuse = [&](const std::string& problem, const std::string& remedy) {
    fail("lora", "rank", problem, remedy + ", or lora.rank=0");
  };
  const MemorySpec& memory = spec.memory;
  if (spec.layout.embedding_gradient != EmbeddingGradient::dense)
    fail("layout", "embedding_gradient", "the embedding is frozen under [lora], and has no gradient to sum rows of",
         "leave embedding_gradient out");
  if (spec.layout.dp_kind != DpKind::ddp)
    refuse(fmt::format("adapters are updated by the ranks that compute, and dp_kind is \"{}\"",
                       name_of(spec.layout.dp_kind)),
           "use layout.dp_kind=ddp");
  if (spec.layout.unflushed())
    refuse("a pipeline without a flush keeps versions of all weights, and those of the base do not change",
           "use layout.schedule=1f1b");
  if (spec.sync.changes_numbers()) refuse("adapters are not combined with what [sync] changes yet", "leave [sync] out");
  if (spec.sparsity) refuse("a mask takes weights away, and those of the base do not change", "use sparsity.kind=none");
  if (spec.precision.compute == Precision::fp8)
    refuse("adapters have no products in fp8 yet", "use precision.compute=bf16");
  if (memory.offload_optimizer != Offload::none || memory.offload_gradients != Offload::none ||
      memory.offload_parameters != Offload::none)
    refuse("state of adapters is small, and is not offloaded",
           "leave offload_optimizer, offload_gradients and offload_parameters out of [memory]");
}

void require_base(const RunSpec& spec) {
  if (!spec.lora || !spec.model_hf.empty() || !spec.model_from.empty()) return;
  throw UserError(ExitCode::usage,
                  fmt::format("lora.rank = {} trains adapters beside weights that are there, and this run would begin "
                              "with random ones",
                              spec.lora.rank),
                  "name the weights by model.hf=FOLDER or model.from=RUN, or use lora.rank=0");
}

}  // namespace lockstep
