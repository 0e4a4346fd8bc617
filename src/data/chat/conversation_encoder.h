// Conversations as tokens, and which of the tokens are targets: those of answers.
//
// The tokens are those of the whole text. An answer's tokens begin after as many as the text before it has in common
// with the whole, and end after as many as the text up to its end has: where a tokenizer joins characters across a
// border, the joined token is of what comes after. White space that the template writes after the special token that
// ends an answer is no part of it, unless {% generation %} encloses it.
//
// Messages: the text holds its special tokens itself; nothing is added. Prompt and completion: what the tokenizer's
// template adds, and the token that ends a document, which is a target: it ends the answer. Without a tokenizer tokens
// are bytes.
//
// One thread at a time. Failure: UserError (bad_input_file), one line that begins with `where`.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/conversation.h"
#include "data/tokenizer/tokenizer.h"

namespace lockstep {

class ConversationEncoder {
 public:
  // Either may be null: without a tokenizer tokens are bytes and the end of a document is theirs; without a template
  // messages are refused.
  ConversationEncoder(std::shared_ptr<const Tokenizer> tokenizer, std::int32_t end,
                      std::shared_ptr<const ChatTemplate> chat);

  struct Encoded {
    std::int64_t answers = 0;                      // 0: nothing of it is a target
    std::optional<std::int32_t> last_target = {};  // of the last answer
  };
  // Appends the line's tokens, and for each 1 where it is a target. Where there is no answer nothing is appended.
  Encoded encode(std::string_view line, const std::string& where, std::vector<std::int32_t>& ids,
                 std::vector<std::uint8_t>& targets);

 private:
  void encode_text(std::string_view text, Specials specials, std::vector<std::int32_t>& ids);
  // Where in the tokens of the text each of these bytes, in order, is.
  std::vector<std::size_t> places_of(std::string_view text, const std::vector<std::size_t>& borders, Specials specials,
                                     const std::string& where);
  std::size_t without_blanks(std::size_t from, std::size_t to) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::int32_t end_;
  std::shared_ptr<const ChatTemplate> chat_;
  TokenizerScratch scratch_;
  std::vector<std::int32_t> whole_, part_;
};

}  // namespace lockstep
