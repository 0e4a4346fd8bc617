#include "data/story_grammar.h"

#include <algorithm>
#include <array>
#include <bit>
#include <span>

#include "base/error.h"
#include "base/philox.h"
#include "data/story_words.h"

namespace lockstep {

namespace {

constexpr std::uint64_t kExampleSeed = 1;
constexpr std::size_t kExampleStories = 1800;

// Of each variable, the values that it may have, a bit each.
using Values = std::array<std::uint32_t, kStoryVariables>;

std::uint32_t all_values(StoryVariable variable) { return (std::uint32_t{1} << story_values(variable).size()) - 1; }

Values any_values() {
  Values values{};
  for (int v = 0; v < kStoryVariables; ++v)
    values[static_cast<std::size_t>(v)] = all_values(static_cast<StoryVariable>(v));
  return values;
}

// What a sentence says of variables that other sentences do not share is forgotten after it.
void forget_own(Values& values) {
  for (const StoryVariable v : kOfOneSentence) values[static_cast<std::size_t>(v)] = all_values(v);
}

bool is_capital(char c) { return c >= 'A' && c <= 'Z'; }
char lower(char c) { return is_capital(c) ? static_cast<char>(c - 'A' + 'a') : c; }
char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

// A slot as patterns have it, "{he}"; with a capital, "{He}", the form begins with one.
struct Slot {
  StorySlot what;
  bool capital;
};

Slot slot_of(std::string_view name) {
  for (const StorySlot& slot : kStorySlots) {
    if (slot.name == name) return {slot, false};
    if (slot.name.substr(1) == name.substr(1) && lower(name[0]) == slot.name[0]) return {slot, true};
  }
  LOCKSTEP_CHECK(false, "no slot {}", name);
}

std::string form_of(const Slot& slot, std::size_t value) {
  std::string form(story_values(slot.what.variable)[value][slot.what.form]);
  if (slot.capital) form[0] = upper(form[0]);
  return form;
}

// Random words of one story, one after the other.
class Draws {
 public:
  Draws(std::uint64_t seed, std::uint64_t index) : key_(random_key(seed, "stories")), index_(index) {}
  // In [0, n). Slightly uneven (by n / 2^32), which nothing depends on.
  std::size_t below(std::size_t n) {
    if (used_ == words_.size()) words_ = philox(key_, counter_++, index_), used_ = 0;
    return static_cast<std::size_t>((std::uint64_t{words_[used_++]} * n) >> 32);
  }

 private:
  std::uint64_t key_, index_, counter_ = 0;
  Philox4 words_{};
  std::size_t used_ = 4;
};

std::string written(std::string_view pattern, Values& values, Draws& draws) {
  std::string out;
  for (std::size_t at = 0; at < pattern.size(); ++at) {
    if (pattern[at] != '{') {
      out += pattern[at];
      continue;
    }
    const std::size_t end = pattern.find('}', at);
    const Slot slot = slot_of(pattern.substr(at + 1, end - at - 1));
    std::uint32_t& allowed = values[static_cast<std::size_t>(slot.what.variable)];
    if (std::popcount(allowed) > 1) allowed = std::uint32_t{1} << draws.below(story_values(slot.what.variable).size());
    out += form_of(slot, static_cast<std::size_t>(std::countr_zero(allowed)));
    at = end;
  }
  return out;
}

// Whether the text is this pattern with some values of those allowed: those that make it so.
bool matches(std::string_view pattern, std::string_view text, Values& values) {
  for (; !pattern.empty() && pattern[0] != '{'; pattern.remove_prefix(1), text.remove_prefix(1))
    if (text.empty() || text[0] != pattern[0]) return false;
  if (pattern.empty()) return text.empty();
  const std::size_t end = pattern.find('}');
  const Slot slot = slot_of(pattern.substr(1, end - 1));
  const auto variable = static_cast<std::size_t>(slot.what.variable);
  // Values that have the same form here stay possible together.
  for (std::uint32_t left = values[variable]; left != 0;) {
    const std::string form = form_of(slot, static_cast<std::size_t>(std::countr_zero(left)));
    std::uint32_t alike = 0;
    for (std::uint32_t rest = left; rest != 0; rest &= rest - 1)
      if (form_of(slot, static_cast<std::size_t>(std::countr_zero(rest))) == form) alike |= rest & -rest;
    left &= ~alike;
    if (!text.starts_with(form)) continue;
    Values tried = values;
    tried[variable] = alike;
    if (!matches(pattern.substr(end + 1), text.substr(form.size()), tried)) continue;
    values = tried;
    return true;
  }
  return false;
}

// Whether the sentences are these parts of a plot, one each.
bool continues(std::span<const StoryPart> parts, std::span<const std::string_view> sentences, const Values& values) {
  if (parts.empty() || sentences.empty()) return parts.empty() && sentences.empty();
  for (const std::string_view pattern : parts[0].patterns) {
    Values tried = values;
    if (!matches(pattern, sentences[0], tried)) continue;
    forget_own(tried);
    if (continues(parts.subspan(1), sentences.subspan(1), tried)) return true;
  }
  return false;
}

}  // namespace

std::string write_story(std::uint64_t seed, std::uint64_t index) {
  Draws draws(seed, index);
  Values values = any_values();
  std::string story;
  for (const StoryPart& part : kStoryPlots[draws.below(kStoryPlots.size())]) {
    if (!story.empty()) story += part.begins_line ? '\n' : ' ';
    story += written(part.patterns[draws.below(part.patterns.size())], values, draws);
    forget_own(values);
  }
  return story;
}

std::vector<std::string> example_stories() {
  std::vector<std::string> stories;
  for (std::uint64_t i = 0; stories.size() < kExampleStories; ++i)
    if (std::string story = write_story(kExampleSeed, i); story.size() < kStoryWindow)
      stories.push_back(std::move(story));
  return stories;
}

bool is_story_sentence(std::string_view sentence) {
  for (const std::span<const StoryPart> plot : kStoryPlots)
    for (const StoryPart& part : plot)
      for (const std::string_view pattern : part.patterns)
        if (Values values = any_values(); matches(pattern, sentence, values)) return true;
  return false;
}

bool is_story(std::string_view text) {
  const SentenceList list = split_sentences(text);
  if (!list.unfinished.empty()) return false;
  for (const std::span<const StoryPart> plot : kStoryPlots)
    if (continues(plot, list.sentences, any_values())) return true;
  return false;
}

SentenceList split_sentences(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  SentenceList list;
  std::size_t begin = text.find_first_not_of(kBlank);
  for (std::size_t at = begin; at < text.size(); ++at) {
    if (std::string_view(".!?").find(text[at]) == std::string_view::npos) continue;
    std::size_t end = at + 1;
    if (end < text.size() && text[end] == '"') ++end;
    const bool ends_line = end == text.size() || text[end] == '\n' || text[end] == '\r';
    const bool then_new = end < text.size() && text[end] == ' ' &&
                          (end + 1 == text.size() || !(text[end + 1] >= 'a' && text[end + 1] <= 'z'));
    if (!ends_line && !then_new) continue;
    list.sentences.push_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(kBlank, end);
    if (begin == std::string_view::npos) return list;
    at = begin - 1;
  }
  if (begin != std::string_view::npos) list.unfinished = text.substr(begin);
  return list;
}

StoryCount count_stories(std::string_view text) {
  StoryCount count;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find("\n\n"), text.size());
    const std::string_view story = text.substr(0, end);
    text.remove_prefix(std::min(end + 2, text.size()));
    const SentenceList list = split_sentences(story);
    if (list.sentences.empty() && list.unfinished.empty()) continue;
    ++count.stories;
    if (is_story(story)) ++count.whole;
    for (const std::string_view sentence : list.sentences) {
      ++count.sentences;
      if (is_story_sentence(sentence))
        ++count.accepted;
      else if (count.first_refused.empty())
        count.first_refused = sentence;
    }
  }
  return count;
}

}  // namespace lockstep
