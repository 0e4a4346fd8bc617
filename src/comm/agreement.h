// Checks that all ranks have equal settings, program versions and file contents, before they rely on it.
//
// Each rank brings a list of named values. A checksum of it travels first; only where those differ do the lists travel,
// and the first name whose values differ is told, with every value and the ranks that have it. The answer is the same
// on all ranks, so that all of them can end for the same reason.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"

namespace lockstep {

using NamedValues = std::vector<std::pair<std::string, std::string>>;

// Gives every rank's text, by rank. All ranks call it as often, in the same order.
using TextExchange = std::function<std::vector<std::string>(const std::string& mine)>;

TextExchange texts_over(Communicator& ranks);  // gather_texts(), of ranks that outlive this

// "rank 1 has optim.lr = 0.5, ranks 0, 2-3 have 0.001". Nothing where all lists are the same. Names are looked at in
// the order of rank 0's list; a name that a rank lacks has the value "(not set)" there.
std::optional<std::string> find_disagreement(const NamedValues& mine, const TextExchange& exchange);

// "rank 1", "ranks 0, 2-3".
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace lockstep
