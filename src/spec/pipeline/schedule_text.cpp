// parse_schedule: schedules written by hand.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "base/error.h"
#include "spec/pipeline/schedule.h"
#include "spec/text/text_input.h"

namespace lockstep {

namespace {

constexpr int kMost = 1 << 20;  // of any number that a schedule may name

[[noreturn]] void refuse(const std::string& where, int line, const std::string& problem, const std::string& remedy) {
  throw UserError(ExitCode::usage, fmt::format("{}:{}: {}", where, line, problem), remedy);
}

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0 || value > kMost) return std::nullopt;
  return value;
}

// "F3", or "F3@1"; without a chunk it is the line's own.
ChunkAction parse_word(std::string_view word, int stage, const std::string& where, int line) {
  constexpr std::string_view kLetters = "FBIW";
  const std::size_t step = kLetters.find(word.front()), at = std::min(word.find('@'), word.size());
  const std::optional<int> micro = number(word.substr(1, at - 1));
  const std::optional<int> chunk = at == word.size() ? std::optional(stage) : number(word.substr(at + 1));
  if (step == std::string_view::npos || !micro || !chunk)
    refuse(where, line, fmt::format("{} is no step", quote_text(word)),
           "write F, B, I or W and a micro-batch, as in F0, or with a chunk, as in F0@3");
  return {static_cast<ChunkStep>(step), *chunk, *micro};
}

}  // namespace

PipelineSchedule parse_schedule(std::string_view text, const std::string& where) {
  PipelineSchedule schedule;
  std::map<int, std::pair<int, int>> found;  // by chunk: its stage, and the line that says so
  int line = 0, micro = 0;
  while (!text.empty()) {
    ++line;
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view row = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    row = row.substr(0, row.find('#'));
    const int stage = static_cast<int>(schedule.stages.size());
    std::vector<ChunkAction> list;
    for (std::size_t i = 0; i < row.size();) {
      const std::size_t begin = row.find_first_not_of(" \t\r", i);
      if (begin == std::string_view::npos) break;
      i = std::min(row.find_first_of(" \t\r", begin), row.size());
      const ChunkAction a = parse_word(row.substr(begin, i - begin), stage, where, line);
      const auto [at, is_new] = found.try_emplace(a.chunk, stage, line);
      if (!is_new && at->second.first != stage)
        refuse(where, line, fmt::format("chunk {} is a stage's of line {} already", a.chunk, at->second.second),
               "give every chunk to one stage");
      micro = std::max(micro, a.micro + 1);
      list.push_back(a);
    }
    if (!list.empty()) schedule.stages.push_back(std::move(list));
  }
  const int stages = static_cast<int>(schedule.stages.size()), chunks = static_cast<int>(found.size());
  if (stages == 0) refuse(where, std::max(line, 1), "there is no step in it", "write a line per stage, as in F0 B0");
  if (found.rbegin()->first != chunks - 1 || chunks % stages != 0)
    refuse(where, line,
           fmt::format("{} stages have {} chunks, the last of them {}", stages, chunks, found.rbegin()->first),
           "number chunks from 0 on, in the order of the model, and give every stage as many");
  schedule.shape = {.stages = stages, .micro = micro, .chunks = chunks / stages};
  for (const auto& [chunk, place] : found) schedule.stage_of.push_back(place.first);
  for (int s = 0; s < stages; ++s)
    if (std::ranges::count(schedule.stage_of, s) != schedule.shape.chunks)
      refuse(where, line, fmt::format("stage {} has not {} chunks as others have", s, schedule.shape.chunks),
             "give every stage as many");
  if (const std::string fault = schedule_fault(schedule); !fault.empty())
    throw UserError(ExitCode::usage, fmt::format("{}: {}", where, fault),
                    "`lockstep schedule --text` prints one to start from, docs/pipeline-parallel.md has the rules");
  return schedule;
}

}  // namespace lockstep
