// The tokens of "added_tokens": found in the text itself, before the model sees it.
//
// Those that are not `normalized` are looked for in the text as it is, the others, in their normalized form, in the
// normalized text between them. At each place the longest wins, from left to right. `single_word`: only where no word
// character is beside it. `lstrip` and `rstrip`: takes the white space before and after it along.
//
// Ids are those that Hugging Face gives: the vocabulary's own where the text is in it, else one after another from the
// vocabulary's size on, whatever "id" says.
//
// Threads: immutable after construction. Failure: UserError (bad_input_file), one line.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/tokenizer/token_table.h"
#include "data/tokenizer/tokenizer_json.h"

namespace lockstep {

struct AddedToken {
  std::string text;
  std::int32_t id = 0;
  bool single_word = false, strips_left = false, strips_right = false, normalized = false, special = false;
};

// Finds the longest of some texts at a place. Its nodes are sorted lists: a thousand special tokens take little room.
class TextTrie {
 public:
  void build(std::vector<std::pair<std::string, int>> texts);  // non-empty texts with the number each stands for
  bool empty() const { return nodes_.empty(); }
  // The first place from `from` on where one begins: its bytes and number. False when there is none.
  bool find(std::string_view text, std::size_t from, std::size_t& begin, std::size_t& end, int& number) const;

 private:
  struct Node {
    std::uint32_t first = 0, count = 0;  // of edges_
    int number = -1;                     // of the text that ends here
  };
  struct Edge {
    unsigned char byte;
    std::uint32_t node;
  };

  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::vector<bool> starts_ = std::vector<bool>(256);
};

class AddedTokens {
 public:
  using Normalize = std::function<std::string(std::string_view)>;

  AddedTokens(const TokenizerNode& document, const TokenTable& vocabulary, const Normalize& normalize);

  // Calls token(const AddedToken&) and rest(text between, its place) in the order of the text. `normalized`: which of
  // the two kinds is looked for.
  template <class Token, class Rest>
  void split(std::string_view text, bool normalized, Token&& token, Rest&& rest) const;

  const AddedToken* find(std::string_view text) const;
  const AddedToken* find(std::int32_t id) const;
  bool special(std::string_view text) const;
  std::int32_t end() const { return end_; }  // the largest id and one
  const std::vector<AddedToken>& all() const { return tokens_; }

 private:
  // Whether a match counts, its ends moved as the token strips.
  static bool settle(const AddedToken& token, std::string_view text, std::size_t done, std::size_t& begin,
                     std::size_t& end);

  std::vector<AddedToken> tokens_;  // the last of each id
  std::unordered_map<std::string, std::size_t> by_text_;
  std::unordered_map<std::int32_t, std::size_t> by_id_;
  std::unordered_map<std::string, bool> special_;
  TextTrie plain_, normalized_;
  std::int32_t end_ = 0;
};

template <class Token, class Rest>
void AddedTokens::split(std::string_view text, bool normalized, Token&& token, Rest&& rest) const {
  const TextTrie& trie = normalized ? normalized_ : plain_;
  std::size_t done = 0, from = 0, begin = 0, end = 0;
  int number = 0;
  while (!trie.empty() && trie.find(text, from, begin, end, number)) {
    const AddedToken& found = tokens_[static_cast<std::size_t>(number)];
    from = end;
    if (!settle(found, text, done, begin, end)) continue;
    if (done < begin) rest(text.substr(done, begin - done), done);
    token(found);
    done = end;
  }
  if (done < text.size()) rest(text.substr(done), done);
}

}  // namespace lockstep
