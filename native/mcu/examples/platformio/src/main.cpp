// Words from any source of samples: here a microphone on an I2S port that a board support package
// fills by DMA. read_microphone is yours.
#include <Arduino.h>
#include <dk.h>

extern "C" size_t read_microphone(int16_t *samples, size_t most); // returns how many

void setup() {
    Serial.begin(115200);
    dk_init();
}

void loop() {
    static int16_t samples[320];
    dk_push(samples, read_microphone(samples, 320));
    dk_event event;
    while (dk_result(&event)) Serial.println(dk_labels[event.label]);
}

extern "C" __attribute__((weak)) size_t read_microphone(int16_t *, size_t) { return 0; }
