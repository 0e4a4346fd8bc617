#include "data/corpus/corpus_encoder.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "base/checksum.h"
#include "base/error.h"
#include "data/byte_tokenizer.h"
#include "data/chat/conversation_encoder.h"
#include "data/corpus/corpus_state.h"
#include "data/corpus/document_reader.h"
#include "data/corpus/json_text.h"
#include "data/token_file_writer.h"
#include "data/tokenized_text.h"
#include "data/tokenizer/utf8.h"

namespace lockstep {

namespace {

// Bytes of batches on their way, beside one that alone may be larger: two for each thread, and some to read ahead.
constexpr std::size_t kReadAhead = 4 * DocumentReader::kBatchBytes;
constexpr std::int64_t kMostNotes = 10;

// A batch on its way: read, encoded, written.
struct Work {
  RawBatch batch;
  std::size_t size = 0;  // of its text
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> targets;  // of conversations: for each of them
  std::vector<std::size_t> ends;      // of each document in ids
  std::vector<std::string> notes;
  std::int64_t empty = 0, unanswered = 0, endless = 0;
  std::int32_t endless_token = 0;  // the first
  std::exception_ptr failure;
  bool taken = false, done = false;
};

bool is_json(const CorpusJob& job) { return job.conversations || !job.key.empty(); }

std::uint64_t identity_of(const CorpusJob& job, const CorpusInputs& inputs) {
  std::string what =
      fmt::format("1 {:016x} {:016x} {} {} {}", inputs.identity, job.tokenizer ? job.tokenizer->fingerprint() : 0,
                  job.tokenizer ? job.end : kEndOfDocument, job.longest, job.key);
  if (job.conversations) what += fmt::format(" conversations {:016x}", job.chat ? job.chat->fingerprint() : 0);
  return checksum(std::as_bytes(std::span(what)));
}

// Encodes batches, one at a time.
class BatchEncoder {
 public:
  BatchEncoder(const CorpusJob& job, const CorpusInputs& inputs) : job_(job), inputs_(inputs) {
    if (job.conversations)
      conversations_.emplace(job.tokenizer, job.end, job.chat);
    else if (job.tokenizer)
      encoder_.emplace(job.tokenizer, job.end);
  }

  void encode(Work& work) {
    for (const RawDocument& document : work.batch.documents) {
      std::string_view text = std::string_view(work.batch.bytes).substr(document.begin, document.end - document.begin);
      if (conversations_) {
        add_conversation(text, document, work);
        continue;
      }
      if (!job_.key.empty()) text = text_of_line(text, document);
      if (text.empty()) {
        ++work.empty;
        continue;
      }
      if (encoder_) {
        if (const std::size_t valid = valid_utf8(text); valid != text.size())
          work.notes.push_back(
              fmt::format("{}: byte {} is not UTF-8; such bytes become U+FFFD", path_of(document), valid));
        const std::span<const std::int32_t> ids = encoder_->encode(text);
        work.ids.insert(work.ids.end(), ids.begin(), ids.end());
      } else {
        work.ids.reserve(work.size + work.batch.documents.size());
        for (const char byte : text) work.ids.push_back(static_cast<unsigned char>(byte));
        work.ids.push_back(kEndOfDocument);
      }
      work.ends.push_back(work.ids.size());
    }
    work.batch.bytes = {};
    work.batch.documents = {};
  }

 private:
  std::string path_of(const RawDocument& document) const {
    return shown_name(inputs_.files[static_cast<std::size_t>(document.input)].path);
  }
  void add_conversation(std::string_view line, const RawDocument& document, Work& work) {
    const auto encoded =
        conversations_->encode(line, fmt::format("{}:{}", path_of(document), document.line), work.ids, work.targets);
    if (encoded.answers == 0) {
      ++work.unanswered;
      return;
    }
    work.ends.push_back(work.ids.size());
    if (job_.ends.empty() || std::ranges::find(job_.ends, *encoded.last_target) != job_.ends.end()) return;
    if (work.endless++ == 0) work.endless_token = *encoded.last_target;
  }
  std::string_view text_of_line(std::string_view line, const RawDocument& document) {
    text_.clear();
    std::string problem;
    if (!json_text(line, job_.key, text_, problem))
      throw UserError(ExitCode::bad_input_file, fmt::format("{}:{}: {}", path_of(document), document.line, problem),
                      "mend the line, or name another key with --key");
    return text_;
  }

  const CorpusJob& job_;
  const CorpusInputs& inputs_;
  std::optional<DocumentEncoder> encoder_;
  std::optional<ConversationEncoder> conversations_;
  std::string text_;
};

// A queue of batches in the order of the input: one thread reads into it, several encode what is in it, and the caller
// takes what is done from its front.
class EncodingQueue {
 public:
  EncodingQueue(const CorpusJob& job, const CorpusInputs& inputs, const CorpusPlace& from)
      : reader_(inputs, is_json(job), job.longest, from),
        most_in_flight_(kReadAhead +
                        static_cast<std::size_t>(std::max(1, job.threads)) * 2 * DocumentReader::kBatchBytes) {
    threads_.emplace_back([this] { read(); });
    for (int i = 0; i < std::max(1, job.threads); ++i)
      threads_.emplace_back([this, &job, &inputs] { encode(job, inputs); });
  }
  ~EncodingQueue() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  // The next batch, encoded; null at the end. Throws what reading or encoding threw at this place of the input.
  std::unique_ptr<Work> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return queue_.empty() ? ended_ : queue_.front()->done; });
    if (queue_.empty()) return nullptr;
    std::unique_ptr<Work> work = std::move(queue_.front());
    queue_.pop_front();
    if (first_open_ > 0) --first_open_;  // a failure of the reader may not have been passed yet
    in_flight_ -= work->size;
    lock.unlock();
    changed_.notify_all();
    if (work->failure) std::rethrow_exception(work->failure);
    return work;
  }
  std::int64_t raw_bytes() const { return reader_.raw_bytes(); }

 private:
  void read() {
    for (bool more = true; more;) {
      auto work = std::make_unique<Work>();
      try {
        std::optional<RawBatch> batch = reader_.next();
        more = batch.has_value();
        if (more) work->batch = std::move(*batch);
      } catch (...) {
        work->failure = std::current_exception();
        work->taken = work->done = true;
        more = false;
        const std::lock_guard lock(mutex_);
        queue_.push_back(std::move(work));
      }
      std::unique_lock lock(mutex_);
      if (work && more) {
        work->size = work->batch.bytes.size();
        in_flight_ += work->size;
        queue_.push_back(std::move(work));
      }
      ended_ = !more;
      changed_.notify_all();
      changed_.wait(lock, [this] { return stop_ || in_flight_ < most_in_flight_; });
      if (stop_) return;
    }
  }

  void encode(const CorpusJob& job, const CorpusInputs& inputs) {
    BatchEncoder encoder(job, inputs);
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || first_open_ < std::ssize(queue_) || ended_; });
      if (stop_ || (ended_ && first_open_ >= std::ssize(queue_))) return;
      Work& work = *queue_[static_cast<std::size_t>(first_open_++)];
      if (work.taken) continue;
      work.taken = true;
      lock.unlock();
      std::exception_ptr failure;
      try {
        encoder.encode(work);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      work.failure = failure;
      work.done = true;
      lock.unlock();
      changed_.notify_all();
    }
  }

  DocumentReader reader_;
  std::size_t most_in_flight_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Work>> queue_;  // by mutex_, as all below
  std::int64_t first_open_ = 0;              // the first in the queue that nobody has taken
  std::size_t in_flight_ = 0;
  bool ended_ = false, stop_ = false;
  std::vector<std::thread> threads_;
};

CorpusPlace place_to_begin(const CorpusJob& job, std::uint64_t identity, const std::optional<CorpusState>& before,
                           const CorpusInputs& inputs) {
  if (!before) return {};
  if (before->job == identity && before->place.input <= std::ssize(inputs.files) &&
      (before->place.bytes == 0 || before->place.input < std::ssize(inputs.files)))
    return before->place;
  throw UserError(ExitCode::bad_input_file,
                  fmt::format("{}: is of other inputs, another tokenizer or other settings, or they have changed",
                              corpus_state_of(job.out).string()),
                  "give what it began with, or remove it to begin anew");
}

}  // namespace

CorpusResult encode_corpus(const CorpusJob& job) {
  using Clock = std::chrono::steady_clock;
  const CorpusInputs inputs = find_inputs(job.paths, is_json(job), job.conversations ? "" : kTextWithoutKey);
  const std::uint64_t identity = identity_of(job, inputs);
  std::optional<CorpusState> before = read_corpus_state(job.out);
  std::error_code ignored;
  // Killed after the file was complete and before this was removed.
  if (before && !std::filesystem::exists(TokenFileWriter::partial_of(job.out), ignored)) before.reset();
  const CorpusPlace from = place_to_begin(job, identity, before, inputs);
  const std::int64_t vocabulary = job.tokenizer ? job.tokenizer->vocabulary() : kByteVocabulary;
  const Marks marks = job.conversations ? Marks::yes : Marks::no;
  CorpusResult result{.passed_over = inputs.passed_over};
  std::optional<TokenFileWriter> writer;
  bool saved = before.has_value();
  CorpusPlace place = from;
  const auto save = [&] {
    save_corpus_state(job.out, {.job = identity, .written = writer->sync(), .place = place});
    saved = true;
  };
  const auto forget = [&] { std::filesystem::remove(corpus_state_of(job.out), ignored); };
  try {
    EncodingQueue queue(job, inputs, from);
    if (before)
      writer.emplace(job.out, vocabulary, before->written, marks);
    else
      writer.emplace(job.out, vocabulary, marks);
    result.continued = writer->written().documents;
    CorpusProgress progress{.all_raw_bytes = inputs.bytes};
    std::int64_t notes = 0;
    auto last_saved = Clock::now();
    while (std::unique_ptr<Work> work = queue.next()) {
      std::size_t begin = 0;
      for (const std::size_t end : work->ends) {
        const std::span ids = std::span(work->ids).subspan(begin, end - begin);
        if (job.conversations)
          writer->add(ids, std::span(work->targets).subspan(begin, end - begin));
        else
          writer->add(ids);
        begin = end;
      }
      for (const std::string& note : work->notes) {
        if (notes++ < kMostNotes) job.note(note);
        if (notes == kMostNotes) job.note("further documents that are not UTF-8 are not named");
      }
      result.empty += work->empty;
      result.unanswered += work->unanswered;
      if (result.endless == 0) result.endless_token = work->endless_token;
      result.endless += work->endless;
      place = work->batch.after;
      progress.raw_bytes = queue.raw_bytes();
      progress.text_bytes += static_cast<std::int64_t>(work->size);
      progress.tokens = writer->written().tokens;
      progress.documents = writer->written().documents;
      const bool proceed = job.proceed(progress);
      if (!proceed || std::chrono::duration<double>(Clock::now() - last_saved).count() >= job.save_seconds) {
        save();
        last_saved = Clock::now();
      }
      if (proceed) continue;
      writer->keep();
      result.tokens = progress.tokens;
      result.documents = progress.documents;
      return result;
    }
    if (writer->written().documents == 0 && result.unanswered > 0)
      throw UserError(ExitCode::bad_input_file,
                      fmt::format("{}: none of its {} conversations has an answer of the assistant",
                                  shown_name(job.paths[0]), result.unanswered),
                      job.chat && job.chat->encloses_answers()
                          ? "name a file with answers; is {% generation %} in the template around them?"
                          : "name a file with messages of the role assistant");
    if (writer->written().documents == 0)
      throw UserError(ExitCode::bad_input_file, fmt::format("{}: there is no text in it", shown_name(job.paths[0])),
                      "name a file or folder with text");
    writer->finish();
  } catch (const EnvironmentError&) {
    // What was saved can be continued when the disk has room again.
    if (saved && writer) writer->keep();
    throw;
  } catch (const UserError&) {
    if (writer) forget();
    throw;
  }
  forget();
  result.complete = true;
  result.tokens = writer->written().tokens;
  result.documents = writer->written().documents;
  result.targets = writer->written().targets;
  return result;
}

}  // namespace lockstep
