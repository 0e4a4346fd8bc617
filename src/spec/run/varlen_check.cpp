#include "spec/run/varlen_check.h"

namespace lockstep {

void check_varlen(const RunSpec& spec, const VarlenFault& fail) {
  if (spec.data.documents != Documents::varlen) return;
  const auto refuse = [&](const std::string& problem, const std::string& remedy) {
    fail("data", "documents", "documents = \"varlen\" has samples without padding, and " + problem,
         remedy + ", or data.documents=packed");
  };
  if (spec.model.dropout > 0) refuse("dropout is keyed on places in samples of one length", "use model.dropout=0");
  if (spec.model.attention_dropout > 0)
    refuse("dropout is keyed on places in samples of one length", "use model.attention_dropout=0");
  if (spec.precision.compute == Precision::fp8)
    refuse("products in fp8 take tokens by sixteens", "use precision.compute=bf16");
  if (spec.layout.dp_kind == DpKind::central)
    refuse("under central data parallel rank 0 takes losses of samples of one length", "use layout.dp_kind=ddp");
  if (spec.run.autotune) refuse("products would be timed anew for every length", "use run.autotune=false");
  if (spec.sync.compress_activations)
    refuse("activations are coded in rows of one number", "use sync.compress_activations=none");
}

}  // namespace lockstep
