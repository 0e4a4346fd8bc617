// Which rank is to blame for a fault, by what ranks and agents say of it.
//
// A fault of one rank makes others fail: they wait for it in vain, and say so. So an error text names the rank that it
// blames, if it blames one (the texts are made in comm/failure_text.h, comm/processes/engine_failure.cpp,
// comm/control/, checkpoint/all_or_none.h and launch/leader.cpp; tests/comm/control_culprit_test.cpp makes each of them
// fail for real). How sure it is, is its Blame: what was seen of a rank counts more than that it did not come, since
// who does not come may itself wait for another. A text in which ranks disagree (mismatched calls), and one of nobody,
// blames nobody.
//
// Pure functions; nothing throws but for memory.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// In the order of how sure it is.
enum class Blame : std::uint8_t {
  left,    // it went away, or has ended: most often because of another
  late,    // it has not come in time
  failed,  // it has said that it failed
  seen,    // its process is gone, was ended by a signal, is stopped or silent
};

struct BlamedRank {
  int rank = 0;
  Blame blame = Blame::left;
  bool operator==(const BlamedRank&) const = default;
};

// Of one error text. Where it names several as equals, nobody.
std::optional<BlamedRank> blamed_in(std::string_view text);
inline std::optional<int> culprit_in(std::string_view text) {
  const auto blamed = blamed_in(text);
  return blamed ? std::optional(blamed->rank) : std::nullopt;
}

// A fault as events.jsonl has it.
struct ToldFault {
  std::optional<int> rank = {};     // who tells; nothing: an agent
  std::optional<int> culprit = {};  // whom it blames, where who told knew; else its text is asked
  std::string text = {};
};

// Of all faults that belong together, as those of one epoch: the rank that is blamed with most certainty. One that has
// itself told of another is a victim, whose end was seen in its turn, and hands the blame on: who is killed, stopped or
// hangs tells nothing. Of several the one that most blame, then the one that was blamed first.
std::optional<int> culprit_of(std::span<const ToldFault> faults);

}  // namespace lockstep
