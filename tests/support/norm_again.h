// A norm's output twice: by forward, and by backward-input from the statistics that forward left. Both must have the
// same bits, on every device.
#pragma once
#include "support/kernel_cases.h"

namespace lockstep::tests {

// Cases whose `run` makes both calls; not of the table, since no single kernel is called.
std::vector<KernelCase> norms_again();

// "" when the two outputs of such a case, run on the stream, have the same bits; else where they first differ.
std::string difference_of_norms(const KernelCase& twice, Memory& memory, Stream& stream);

}  // namespace lockstep::tests
