// A corpus as one token file: read by one thread, encoded by many, written in the order of the input.
//
// The file is the same whatever the number of threads, and also when the work was killed on the way: every
// `save_seconds` what is written reaches the disk, and the place in the input with it, in OUT.progress; the next call
// with the same inputs, tokenizer and settings begins there. An input that changed meanwhile is refused. OUT.progress
// and the partial files are gone when the file is complete, and after a mistake in the input.
//
// Each document is its tokens and the end of a document: of a tokenizer what its template adds too, else its bytes and
// kEndOfDocument. Text that is not UTF-8 has U+FFFD there, and `note` is told of the first such byte of each document
// (of the first few documents); JSON that is not is refused with its line, as are lines without the key.
//
// Conversations (data/chat/conversation_encoder.h): each line becomes a document whose targets are marked; lines
// without an answer are passed over and counted.
//
// Memory: about 50 MiB and 15 MiB for each thread, and for a document of B bytes up to 12·B more.
// Failure: UserError (bad_input_file) for the first mistake in the order of the input, whatever thread found it;
// nothing is then written. EnvironmentError when the disk fails; what was saved before can be continued.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/chat/chat_template.h"
#include "data/tokenizer/tokenizer.h"

namespace lockstep {

struct CorpusProgress {
  std::int64_t raw_bytes = 0, all_raw_bytes = 0;  // read of the files, and their size; 0: not known
  std::int64_t text_bytes = 0;                    // that were encoded by this call
  std::int64_t tokens = 0, documents = 0;         // of the file, what was there before included
};

struct CorpusJob {
  std::vector<std::string> paths;  // files, folders, "-"
  std::string key;                 // of JSON lines; empty: text
  std::filesystem::path out;
  std::shared_ptr<const Tokenizer> tokenizer;          // null: bytes
  std::int32_t end = 0;                                // the token that ends a document, of a tokenizer
  bool conversations = false;                          // lines of JSON are conversations; then `key` is empty
  std::shared_ptr<const ChatTemplate> chat = nullptr;  // of them; null: there is none
  std::vector<std::int32_t> ends = {};                 // tokens that generation ends at; empty: not known
  int threads = 1;
  std::size_t longest = std::size_t{256} << 20;  // bytes of a document, or of a line
  double save_seconds = 10;
  std::function<void(const std::string&)> note = [](const std::string&) {};
  // After each batch; false: save and stop.
  std::function<bool(const CorpusProgress&)> proceed = [](const CorpusProgress&) { return true; };
};

struct CorpusResult {
  bool complete = false;  // else it was stopped, and can be continued
  std::int64_t tokens = 0, documents = 0;
  std::int64_t empty = 0;        // documents without text, which were passed over by this call
  std::int64_t passed_over = 0;  // files of folders that are not called .jsonl or .ndjson
  std::int64_t continued = 0;    // documents that were there before
  // Of conversations.
  std::int64_t targets = 0;     // tokens that are marked
  std::int64_t unanswered = 0;  // passed over by this call
  // Whose last answer does not end with a token that generation ends at, of this call; and the first such token.
  std::int64_t endless = 0;
  std::int32_t endless_token = 0;
};

CorpusResult encode_corpus(const CorpusJob& job);

}  // namespace lockstep
