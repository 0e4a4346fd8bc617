#include "data/tokenizer/pre_tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/replacement.h"
#include "data/tokenizer/unicode.h"
#include "data/tokenizer/utf8.h"
#include "spec/text/text_input.h"

namespace lockstep {
namespace {

// The one that ByteLevel has built in.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

SplitBehaviour read_behaviour(const TokenizerNode& node) {
  const std::string name = node.text("behavior");
  if (name == "Removed") return SplitBehaviour::removed;
  if (name == "Isolated") return SplitBehaviour::isolated;
  if (name == "MergedWithPrevious") return SplitBehaviour::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehaviour::merged_with_next;
  if (name == "Contiguous") return SplitBehaviour::contiguous;
  node.unsupported("behavior " + quote_text(name));
}

}  // namespace

void join_ranges(SplitBehaviour behaviour, std::vector<TextRange>& ranges) {
  std::vector<TextRange> joined;
  bool before = false;  // whether the last one matched
  const auto one_of_a_pair = [&](const TextRange& range, auto&& extend) {
    if (range.matches && !before && !joined.empty())
      extend(joined.back());
    else
      joined.push_back(range);
    before = range.matches;
  };
  switch (behaviour) {
    case SplitBehaviour::isolated:
      return;
    case SplitBehaviour::removed:
      std::erase_if(ranges, [](const TextRange& range) { return range.matches; });
      return;
    case SplitBehaviour::contiguous:
      for (const TextRange& range : ranges) {
        if (!joined.empty() && range.matches == before)
          joined.back().end = range.end;
        else
          joined.push_back(range);
        before = range.matches;
      }
      break;
    case SplitBehaviour::merged_with_previous:
      for (const TextRange& range : ranges) one_of_a_pair(range, [&](TextRange& last) { last.end = range.end; });
      break;
    case SplitBehaviour::merged_with_next:
      for (auto range = ranges.rbegin(); range != ranges.rend(); ++range)
        one_of_a_pair(*range, [&](TextRange& last) { last.begin = range->begin; });
      std::reverse(joined.begin(), joined.end());
      break;
  }
  ranges.swap(joined);
}

PreTokenizer::PreTokenizer(const TokenizerNode& document) {
  if (document.has("pre_tokenizer")) read(document.at("pre_tokenizer"));
  gives_bytes_ = !steps_.empty() && std::holds_alternative<ByteLevel>(steps_.back());
}

void PreTokenizer::read(const TokenizerNode& node) {
  const std::string type = node.type();
  const auto place = [&] { return fmt::format("{}: {}: {}", node.where(), node.place(), type); };
  if (steps_.size() == kMostTokenizerSteps)
    node.refuse(fmt::format("has more than {} steps", kMostTokenizerSteps), "use fewer");
  if (type == "Sequence") {
    node.only({"pretokenizers"});
    for (const TokenizerNode& item : node.items("pretokenizers")) read(item);
  } else if (type == "ByteLevel") {
    node.only({"add_prefix_space", "trim_offsets", "use_regex"});
    ByteLevel step{node.flag("add_prefix_space"), std::nullopt};
    if (node.flag("use_regex", true)) step.pattern.emplace(kGpt2Pattern, place());
    steps_.emplace_back(std::move(step));
  } else if (type == "Split") {
    node.only({"pattern", "behavior", "invert"});
    TextOrPattern read = read_text_or_pattern(node);
    steps_.emplace_back(
        Split{std::move(read.text), std::move(read.pattern), read_behaviour(node), node.flag("invert", false)});
  } else if (type == "Metaspace") {
    node.only({"replacement", "prepend_scheme", "add_prefix_space", "split", "str_rep"});
    const std::string scheme = node.text("prepend_scheme", "always");
    Metaspace step{"", Prefix::always, node.flag("split", true)};
    append_utf8(step.replacement, node.character("replacement"));
    if (scheme == "never")
      step.prefix = Prefix::never;
    else if (scheme == "first")
      step.prefix = Prefix::first;
    else if (scheme != "always")
      node.unsupported("prepend_scheme " + quote_text(scheme));
    if (!node.flag("add_prefix_space", true) && step.prefix != Prefix::never)
      node.refuse("add_prefix_space is false and prepend_scheme is not \"never\"", "say the same in both");
    steps_.emplace_back(std::move(step));
  } else if (type == "Digits") {
    node.only({"individual_digits"});
    require_unicode(place());
    steps_.emplace_back(Digits{node.flag("individual_digits", false)});
  } else {
    node.unsupported("pre-tokenizer " + quote_text(type));
  }
}

void PreTokenizer::run(std::size_t index, std::string_view text, bool first, PatternScratch& scratch, Give give,
                       void* to) const {
  if (text.empty()) return;
  if (index == steps_.size()) return give(to, text);
  const auto next = [&](std::string_view word, bool starts) { run(index + 1, word, starts, scratch, give, to); };
  const auto each_range = [&](const std::optional<Pattern>& pattern, const std::string& literal, auto&& visit) {
    std::size_t done = 0;
    const auto at = [&](std::size_t begin, std::size_t end) {
      if (done < begin) visit(TextRange{done, begin, false});
      visit(TextRange{begin, end, true});
      done = end;
    };
    if (pattern) {
      pattern->each(text, scratch, [&](const PatternMatch& match) { at(match.begin, match.end); });
    } else {
      for (std::size_t place = 0; (place = text.find(literal, done)) != std::string_view::npos;)
        at(place, place + literal.size());
    }
    if (done < text.size()) visit(TextRange{done, text.size(), false});
  };
  const auto give_range = [&](const TextRange& range) {
    next(text.substr(range.begin, range.end - range.begin), first && range.begin == 0);
  };

  if (const auto* bytes = std::get_if<ByteLevel>(&steps_[index])) {
    std::string prefixed;
    if (bytes->prefix_space && text[0] != ' ') text = prefixed.append(" ").append(text);
    const bool last = index + 1 == steps_.size();
    const auto give_bytes = [&](const TextRange& range) {
      const std::string_view word = text.substr(range.begin, range.end - range.begin);
      if (word.empty()) return;
      last ? give(to, word) : next(spell_bytes(word), first && range.begin == 0);
    };
    if (bytes->pattern)
      each_range(bytes->pattern, "", give_bytes);
    else
      give_bytes({0, text.size(), true});
  } else if (const auto* split = std::get_if<Split>(&steps_[index])) {
    if (split->behaviour == SplitBehaviour::isolated) return each_range(split->pattern, split->text, give_range);
    std::vector<TextRange> ranges;
    each_range(split->pattern, split->text, [&](TextRange range) {
      range.matches = range.matches != split->invert;
      ranges.push_back(range);
    });
    join_ranges(split->behaviour, ranges);
    for (const TextRange& range : ranges) give_range(range);
  } else if (const auto* meta = std::get_if<Metaspace>(&steps_[index])) {
    std::string replaced;
    replaced.reserve(text.size() + text.size() / 2 + meta->replacement.size());
    const bool has_one = text[0] == ' ' || text.starts_with(meta->replacement);
    if (!has_one && (meta->prefix == Prefix::always || (meta->prefix == Prefix::first && first)))
      replaced += meta->replacement;
    for (const char c : text) c == ' ' ? replaced.append(meta->replacement) : replaced.append(1, c);
    if (!meta->splits) return next(replaced, first);
    const std::string_view all = replaced;
    for (std::size_t begin = 0; begin < all.size();) {
      const std::size_t end = std::min(all.find(meta->replacement, begin + 1), all.size());
      next(all.substr(begin, end - begin), first && begin == 0);
      begin = end;
    }
  } else {
    const bool individual = std::get<Digits>(steps_[index]).individual;
    std::vector<TextRange> ranges;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = at + utf8_bytes(text[at]);
      const bool digit = is_number(utf8_character(text, at));
      if (!ranges.empty() && ranges.back().matches == digit && !(digit && individual))
        ranges.back().end = end;
      else
        ranges.push_back({at, end, digit});
      at = end;
    }
    for (const TextRange& range : ranges) give_range(range);
  }
}

}  // namespace lockstep
