// The pre-tokenizer of a tokenizer.json: splits a text into the words that the model encodes one by one.
//
//   ByteLevel   a space before what starts without one (add_prefix_space), GPT-2's pattern (use_regex), then bytes
//               spelled in the byte alphabet
//   Split       at a text or pattern, with each of the five behaviours, inverted or not
//   Metaspace   spaces become U+2581, one is put before the text by prepend_scheme, split before each
//   Digits      runs of digits, or digits one by one
//   Sequence    one after another
// Others are refused by name.
//
// Words go to a sink in their order, as soon as they are known: a text of any length takes no room for its words. Bytes
// that a ByteLevel in the last place would spell are given as they are, for BpeModel::encode_bytes.
//
// Threads: immutable; each thread has its own PatternScratch. Failure: UserError (bad_input_file), one line.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "data/tokenizer/pattern.h"
#include "data/tokenizer/tokenizer_json.h"

namespace lockstep {

// What is done with the places that match and those between.
enum class SplitBehaviour { removed, isolated, merged_with_previous, merged_with_next, contiguous };

struct TextRange {
  std::size_t begin, end;
  bool matches;
  bool operator==(const TextRange&) const = default;
};
// Ranges in the order of the text, to the words that a behaviour makes of them. In place.
void join_ranges(SplitBehaviour behaviour, std::vector<TextRange>& ranges);

class PreTokenizer {
 public:
  explicit PreTokenizer(const TokenizerNode& document);  // its "pre_tokenizer", if there is one

  // Whether words are bytes to be spelled.
  bool gives_bytes() const { return gives_bytes_; }

  // Calls sink(word). `first`: the text is at the very beginning of what the user gave.
  template <class Sink>
  void split(std::string_view text, bool first, PatternScratch& scratch, Sink&& sink) const {
    using Target = std::remove_reference_t<Sink>;
    run(
        0, text, first, scratch, [](void* to, std::string_view word) { (*static_cast<Target*>(to))(word); }, &sink);
  }

 private:
  struct ByteLevel {
    bool prefix_space;
    std::optional<Pattern> pattern;
  };
  struct Split {
    std::string text;  // empty: the pattern
    std::optional<Pattern> pattern;
    SplitBehaviour behaviour;
    bool invert;
  };
  enum class Prefix { always, first, never };
  struct Metaspace {
    std::string replacement;
    Prefix prefix;
    bool splits;
  };
  struct Digits {
    bool individual;
  };
  using Step = std::variant<ByteLevel, Split, Metaspace, Digits>;
  using Give = void (*)(void* to, std::string_view word);

  void read(const TokenizerNode& node);
  void run(std::size_t step, std::string_view text, bool first, PatternScratch& scratch, Give give, void* to) const;

  std::vector<Step> steps_;
  bool gives_bytes_ = false;
};

}  // namespace lockstep
