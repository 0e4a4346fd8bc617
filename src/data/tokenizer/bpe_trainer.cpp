#include "data/tokenizer/bpe_trainer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <queue>

#include "base/error.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/utf8.h"

namespace lockstep {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::string_view kSplitter =
    R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}})";

PreTokenizer gpt2_splitter() {
  const nlohmann::json document = nlohmann::json::parse(kSplitter);
  const std::string where = "the learner";
  return PreTokenizer(TokenizerNode(document, where, ""));
}

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
}

struct PairPlaces {
  std::int64_t count = 0;
  std::vector<std::uint32_t> words;  // that hold it or once did, ascending
};

struct QueuedPair {
  std::int64_t count;
  std::uint64_t pair;
  bool operator<(const QueuedPair& other) const {  // the queue gives the largest: more often, then lower ids
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

class MergeLearner {
 public:
  explicit MergeLearner(std::vector<CountedWord> words) : words_(std::move(words)) {
    LOCKSTEP_CHECK(words_.size() < (std::size_t{1} << 32), "{} words", words_.size());
    for (std::uint32_t i = 0; i < words_.size(); ++i) count_pairs(i, 1, [](std::uint64_t) { return true; });
    for (const auto& [pair, places] : pairs_) queue_.push({places.count, pair});
  }

  // The next merge, applied; false when no pair comes `least` times.
  bool next(std::int32_t made, std::int64_t least, LearnedMerge& merge) {
    while (!queue_.empty()) {
      const QueuedPair top = queue_.top();
      queue_.pop();
      const auto found = pairs_.find(top.pair);
      if (found == pairs_.end()) continue;
      if (found->second.count != top.count) {  // it has changed since
        if (found->second.count > 0) queue_.push({found->second.count, top.pair});
        if (found->second.count <= 0) pairs_.erase(found);
        continue;
      }
      if (top.count < least) return false;
      merge = {static_cast<std::int32_t>(top.pair >> 32), static_cast<std::int32_t>(top.pair & 0xFFFFFFFFu), top.count};
      apply(merge, made);
      return true;
    }
    return false;
  }

 private:
  // Adds (or subtracts) a word's pairs. New places are noted for pairs that `is_new` says may not have this word yet.
  template <class IsNew>
  void count_pairs(std::uint32_t index, int sign, IsNew is_new) {
    const CountedWord& word = words_[index];
    for (std::size_t i = 0; i + 1 < word.symbols.size(); ++i) {
      const std::uint64_t pair = pair_key(word.symbols[i], word.symbols[i + 1]);
      PairPlaces& places = pairs_[pair];
      places.count += sign * word.count;
      if (sign > 0 && is_new(pair) && (places.words.empty() || places.words.back() != index))
        places.words.push_back(index);
    }
  }

  void apply(const LearnedMerge& merge, std::int32_t made) {
    const std::uint64_t merged = pair_key(merge.left, merge.right);
    const std::vector<std::uint32_t> places = std::move(pairs_[merged].words);
    std::vector<std::uint64_t> fresh;
    for (const std::uint32_t index : places) {
      std::vector<std::int32_t>& symbols = words_[index].symbols;
      const auto is_pair = [&](std::size_t i) { return symbols[i] == merge.left && symbols[i + 1] == merge.right; };
      std::size_t at = 0;
      while (at + 1 < symbols.size() && !is_pair(at)) ++at;
      if (at + 1 >= symbols.size()) continue;
      count_pairs(index, -1, [](std::uint64_t) { return false; });
      std::size_t to = at;
      while (at < symbols.size()) {
        const bool here = at + 1 < symbols.size() && is_pair(at);
        symbols[to++] = here ? made : symbols[at];
        at += here ? 2 : 1;
      }
      symbols.resize(to);
      count_pairs(index, 1, [&](std::uint64_t pair) {
        const bool is_new =
            static_cast<std::int32_t>(pair >> 32) == made || static_cast<std::int32_t>(pair & 0xFFFFFFFFu) == made;
        if (is_new) fresh.push_back(pair);
        return is_new;
      });
    }
    pairs_.erase(merged);
    std::sort(fresh.begin(), fresh.end());
    fresh.erase(std::unique(fresh.begin(), fresh.end()), fresh.end());
    for (const std::uint64_t pair : fresh) queue_.push({pairs_[pair].count, pair});
  }

  std::vector<CountedWord> words_;
  std::unordered_map<std::uint64_t, PairPlaces> pairs_;
  std::priority_queue<QueuedPair> queue_;
};

}  // namespace

WordCounts::WordCounts(std::size_t most) : most_(most), splitter_(gpt2_splitter()) {}

void WordCounts::add(std::string_view text) {
  std::string repaired, key;
  if (valid_utf8(text) != text.size()) text = repaired = utf8_of_bytes(text);
  splitter_.split(text, true, scratch_, [&](std::string_view word) {
    key.assign(word);
    ++counts_[key];
    while (counts_.size() > most_) {
      ++dropped_;
      std::erase_if(counts_, [&](const auto& item) { return item.second <= dropped_; });
    }
  });
}

std::vector<CountedWord> WordCounts::symbols() const {
  std::vector<const std::pair<const std::string, std::int64_t>*> sorted;
  for (const auto& item : counts_) sorted.push_back(&item);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->first < b->first; });
  std::vector<CountedWord> words;
  for (const auto* item : sorted) {
    words.push_back({{}, item->second});
    for (const char byte : item->first) words.back().symbols.push_back(static_cast<unsigned char>(byte));
  }
  return words;
}

std::vector<LearnedMerge> learn_merges(std::vector<CountedWord> words, std::int32_t first, std::int64_t most,
                                       std::int64_t least) {
  MergeLearner learner(std::move(words));
  std::vector<LearnedMerge> merges;
  LearnedMerge merge{};
  while (std::ssize(merges) < most && learner.next(first + static_cast<std::int32_t>(merges.size()), least, merge))
    merges.push_back(merge);
  return merges;
}

std::string byte_level_tokenizer_json(std::span<const LearnedMerge> merges, std::span<const std::string> specials) {
  OrderedJson added = OrderedJson::array(), vocabulary = OrderedJson::object(), pairs = OrderedJson::array();
  for (const std::string& text : specials) {
    added.push_back({{"id", added.size()},
                     {"content", text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
    vocabulary[text] = vocabulary.size();
  }
  std::vector<std::string> texts(256);  // by the learner's ids
  std::vector<char32_t> letters;
  for (int byte = 0; byte < 256; ++byte) {
    texts[static_cast<std::size_t>(byte)] = spell_bytes(std::string(1, static_cast<char>(byte)));
    letters.push_back(letter_of_byte(static_cast<unsigned char>(byte)));
  }
  std::sort(letters.begin(), letters.end());
  // Appended to the list itself: a look-up of each key by operator[] would make this quadratic.
  auto& entries = vocabulary.get_ref<OrderedJson::object_t&>();
  const auto add = [&](const std::string& text) {  // once: a special token may be what a merge gives
    if (std::find(specials.begin(), specials.end(), text) == specials.end()) entries.emplace_back(text, entries.size());
  };
  for (const char32_t letter : letters) {
    std::string text;
    append_utf8(text, letter);
    add(text);
  }
  for (const LearnedMerge& merge : merges) {
    const std::string left = texts[static_cast<std::size_t>(merge.left)];
    const std::string right = texts[static_cast<std::size_t>(merge.right)];
    pairs.push_back(OrderedJson::array({left, right}));
    texts.push_back(left + right);
    add(texts.back());
  }
  const auto byte_level = [](bool prefix) {
    return OrderedJson{
        {"type", "ByteLevel"}, {"add_prefix_space", prefix}, {"trim_offsets", true}, {"use_regex", true}};
  };
  const OrderedJson document = {{"version", "1.0"},
                                {"truncation", nullptr},
                                {"padding", nullptr},
                                {"added_tokens", added},
                                {"normalizer", nullptr},
                                {"pre_tokenizer", byte_level(false)},
                                {"post_processor", byte_level(true)},
                                {"decoder", byte_level(true)},
                                {"model",
                                 {{"type", "BPE"},
                                  {"dropout", nullptr},
                                  {"unk_token", nullptr},
                                  {"continuing_subword_prefix", nullptr},
                                  {"end_of_word_suffix", nullptr},
                                  {"fuse_unk", false},
                                  {"byte_fallback", false},
                                  {"ignore_merges", false},
                                  {"vocab", vocabulary},
                                  {"merges", pairs}}}};
  return document.dump() + "\n";
}

}  // namespace lockstep
