#include "telemetry/culprit.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

using std::string_view;

// What follows the name of a rank that is blamed. A rank "has failed" by its own words, which may blame another.
constexpr std::array<std::pair<string_view, Blame>, 14> kPhrases = {{
    {"is gone", Blame::seen},
    {"was ended by signal", Blame::seen},
    {"has been stopped", Blame::seen},
    {"has not been heard from", Blame::seen},
    {"has said nothing for", Blame::seen},
    {"closed its connection", Blame::seen},
    {"has closed its connection", Blame::seen},
    {"has been in ", Blame::late},  // for longer than it may (launch/rank_watch.cpp)
    {"has been between", Blame::late},
    {"has been saving", Blame::late},
    {"has not come", Blame::late},
    {"went away from", Blame::left},
    {"has ended and will not come", Blame::left},
    {"has left the group and will not come", Blame::left},
}};

// Ranks that do not agree with each other: nobody knows which of them is right.
constexpr std::array<string_view, 5> kDisagree = {"mismatched calls at", "' a group of ranks ", " has room for ",
                                                  ", the others into a '", "nobody can tell whose is wrong"};

bool is_word(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

std::optional<int> number_at(string_view text, std::size_t& at) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  at = static_cast<std::size_t>(end - text.data());
  return number;
}

// Past " (host a, process 12)" and " on a", in whatever order they come.
std::size_t past_place(string_view text, std::size_t at) {
  for (;;) {
    const string_view rest = text.substr(at);
    std::size_t length = 0;
    if (rest.starts_with(" (")) {
      if (const std::size_t end = rest.find(')'); end != rest.npos) length = end + 1;
    } else if (rest.starts_with(" on ") || rest.starts_with(" of ")) {
      if (const std::size_t end = rest.find(' ', 4); end != rest.npos) length = end;
    }
    if (length == 0) return at;
    at += length;
  }
}

struct NamedRank {
  std::size_t begin, end;  // of "rank 2 (process 17)" in the text
  int rank;
};

std::optional<NamedRank> next_rank(string_view text, std::size_t from) {
  constexpr string_view kRank = "rank ";
  for (std::size_t begin = text.find(kRank, from); begin != text.npos; begin = text.find(kRank, begin + 1)) {
    if (begin > 0 && is_word(text[begin - 1])) continue;
    std::size_t at = begin + kRank.size();
    if (const auto rank = number_at(text, at))
      return NamedRank{.begin = begin, .end = past_place(text, at), .rank = *rank};
  }
  return std::nullopt;
}

std::vector<NamedRank> ranks_in(string_view text) {
  std::vector<NamedRank> all;
  for (auto named = next_rank(text, 0); named; named = next_rank(text, named->end)) all.push_back(*named);
  return all;
}

string_view after_space(string_view text, std::size_t at) {
  return at < text.size() && text[at] == ' ' ? text.substr(at + 1) : string_view();
}

// "the coordinator at ::1, port 7, in the process of rank 0 (…), closed its connection".
bool lost_coordinator(string_view text, const NamedRank& named) {
  constexpr string_view kIn = "in the process of ";
  if (named.begin < kIn.size() || text.substr(named.begin - kIn.size(), kIn.size()) != kIn) return false;
  return text.substr(named.end).starts_with(", ");
}

std::optional<BlamedRank> stated_of(string_view text, const NamedRank& named) {
  if (lost_coordinator(text, named)) return BlamedRank{named.rank, Blame::seen};
  // Hashes of its state tell (train/state_check.h, train/state_hashes.h).
  if (text.substr(named.end).starts_with(": its state ")) return BlamedRank{named.rank, Blame::seen};
  const string_view rest = after_space(text, named.end);
  for (const auto& [phrase, blame] : kPhrases)
    if (rest.starts_with(phrase)) return BlamedRank{named.rank, blame};
  return std::nullopt;
}

// Where the words of a rank that has failed begin: after "rank 2 has failed: " or "rank 2 has failed (".
std::size_t words_of_failed(string_view text, const NamedRank& named) {
  const string_view rest = after_space(text, named.end);
  for (const string_view phrase : {string_view("has failed: "), string_view("has failed (")})
    if (rest.starts_with(phrase)) return named.end + 1 + phrase.size();
  return text.npos;
}

// "rank 2: <its words>", or "rank 2 has ended with exit code 5".
std::optional<std::size_t> words_at_the_start(string_view text, const NamedRank& named) {
  if (named.begin != 0) return std::nullopt;
  if (text.substr(named.end).starts_with(": ")) return named.end + 2;
  return std::nullopt;
}

// Words of a rank that tell of nobody in particular, and not of itself.
bool tells_of_others(string_view words) {
  constexpr std::array<string_view, 5> kOthers = {"nobody has put", "did not come, or are gone", "has not answered",
                                                  "cannot reach", "all ranks have come"};
  return std::ranges::any_of(kOthers, [&](string_view phrase) { return words.find(phrase) != words.npos; });
}

}  // namespace

std::optional<BlamedRank> blamed_in(string_view text) {
  constexpr string_view kNotSaved = "checkpoint not saved: ";
  if (text.starts_with(kNotSaved)) text.remove_prefix(kNotSaved.size());
  if (std::ranges::any_of(kDisagree, [&](string_view phrase) { return text.find(phrase) != text.npos; }))
    return std::nullopt;
  const std::vector<NamedRank> ranks = ranks_in(text);
  std::optional<BlamedRank> best;
  bool equals = false;
  const auto take = [&](const BlamedRank& blamed) {
    if (best && blamed.blame < best->blame) return;
    if (best && blamed.blame == best->blame) {
      equals = equals || blamed.rank != best->rank;
      return;
    }
    best = blamed;
    equals = false;
  };
  for (const NamedRank& named : ranks)
    if (const auto blamed = stated_of(text, named)) take(*blamed);
  if (best && best->blame == Blame::seen) return best;  // of several the first, whom the others followed
  if (best && best->blame == Blame::late) return equals ? std::nullopt : best;
  // The innermost of those that have failed, where its own words name nobody.
  std::optional<BlamedRank> failed;
  std::size_t words = 0;
  for (const NamedRank& named : ranks)
    if (const std::size_t begin = words_of_failed(text, named); begin != text.npos) {
      failed = BlamedRank{named.rank, Blame::failed};
      words = begin;
    }
  if (!failed && !best && !ranks.empty())
    if (const auto begin = words_at_the_start(text, ranks.front())) {
      failed = BlamedRank{ranks.front().rank, Blame::failed};
      words = *begin;
    }
  if (failed && best && text.find("rank " + std::to_string(best->rank), words) == text.npos) return failed;
  if (best) return equals ? std::nullopt : best;
  if (failed && tells_of_others(text.substr(words))) return std::nullopt;
  return failed;
}

std::optional<int> culprit_of(std::span<const ToldFault> faults) {
  struct Case {
    Blame blame = Blame::left;
    int votes = 0;
    std::size_t first = 0;
  };
  std::map<int, Case> cases;
  std::map<int, BlamedRank> accused_by;  // whom a rank that tells blames
  for (std::size_t i = 0; i < faults.size(); ++i) {
    const ToldFault& fault = faults[i];
    std::optional<BlamedRank> blamed = blamed_in(fault.text);
    if (fault.culprit) {
      const Blame blame = fault.culprit == fault.rank               ? Blame::failed
                          : blamed && blamed->rank == fault.culprit ? blamed->blame
                                                                    : Blame::late;
      blamed = BlamedRank{*fault.culprit, blame};
    }
    if (!blamed) continue;
    Case& of = cases.try_emplace(blamed->rank, Case{.blame = blamed->blame, .first = i}).first->second;
    of.blame = std::max(of.blame, blamed->blame);
    ++of.votes;
    if (fault.rank && *fault.rank != blamed->rank) accused_by.try_emplace(*fault.rank, *blamed);
  }
  if (cases.empty()) return std::nullopt;
  auto best = cases.begin();
  const auto key = [](const Case& one) { return std::tuple(-static_cast<int>(one.blame), -one.votes, one.first); };
  for (auto at = cases.begin(); at != cases.end(); ++at)
    if (key(at->second) < key(best->second)) best = at;
  int rank = best->first;
  for (std::size_t hops = 0; hops < cases.size(); ++hops) {
    const auto next = accused_by.find(rank);
    if (next == accused_by.end()) return rank;
    rank = next->second.rank;
  }
  return best->first;  // they blame each other in a circle
}

}  // namespace lockstep
