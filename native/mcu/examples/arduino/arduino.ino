// Words from an I2S microphone (INMP441 or the like) on boards whose core has the I2S library,
// such as SAMD, nRF52840 and RP2040/RP2350. Copy this folder into the exported library's
// `examples/`, or open it from File > Examples > deltakwt.
#include <I2S.h>
#include <dk.h>

void setup() {
    Serial.begin(115200);
    if (!I2S.begin(I2S_PHILIPS_MODE, 16000, 32)) {
        Serial.println("no I2S microphone");
        for (;;) {
        }
    }
    dk_init();
}

void loop() {
    static int16_t samples[160];
    for (int i = 0; i < 160; i++) {
        int32_t left = 0;
        while (!(left = I2S.read())) {
        }
        I2S.read();               // the right channel is silent
        samples[i] = left >> 14;  // 24 bits at the top of 32; some gain
    }
    dk_push(samples, 160);
    dk_event event;
    while (dk_result(&event)) {
        Serial.print(dk_labels[event.label]);
        Serial.print(' ');
        Serial.println(event.score);
    }
}
